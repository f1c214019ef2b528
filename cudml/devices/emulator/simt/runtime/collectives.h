// Block barriers, cluster barriers and warp collectives.
#pragma once

#include "state.h"

namespace simt {

// A thread is about to end; if strict, refuses collectives in which others wait for it.
void refuse_exit(const Block& block, unsigned thread);

// A thread has ended; completes collectives that waited only for it.
void complete_after_exit(Block& block, unsigned thread);

const char* warp_op_name(SimtWarpOp op);

// The lanes of a warp that have a thread, ended or not.
uint32_t warp_lanes(const Block& block, unsigned warp);

}  // namespace simt
