// The compiler's version: the major number of its CUDA release.
#pragma once

constexpr int kCompilerMajor = __CUDACC_VER_MAJOR__;
