// The emulator's twin of kernels/common/compiler.cuh: registers do not matter here.
#pragma once

constexpr int kCompilerMajor = 13;
