// Block barriers, cluster barriers and warp collectives.
#pragma once

#include "state.h"

namespace simt {

// A thread is about to end: refuses, if strict, what others wait for it in.
void refuse_exit(const Block& block, unsigned thread);

// A thread has ended: completes whatever waited for it alone.
void complete_after_exit(Block& block, unsigned thread);

const char* warp_op_name(SimtWarpOp op);

// The lanes of a warp that have a thread, ended or not.
uint32_t warp_lanes(const Block& block, unsigned warp);

}  // namespace simt
