// The compiler's version: the major number of the CUDA release that it is of.
#pragma once

constexpr int kCompilerMajor = __CUDACC_VER_MAJOR__;
