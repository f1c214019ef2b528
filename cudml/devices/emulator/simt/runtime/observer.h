// The runtime's calls of check mode. Without SIMT_CHECK they are empty and cost nothing.
#pragma once

#include <string>

#include "state.h"

namespace simt::observe {

#ifdef SIMT_CHECK

void launch_begins(Worker& worker);
// Moves the reports into the launch's error text.
void launch_ends(Worker& worker);

void block_begins(Worker& worker, unsigned resident);
void block_ends(Worker& worker, unsigned resident);

// These threads have reached the barrier: every live one, or the lanes of `waiting` by warp.
void block_barrier(Worker& worker, const Block& block);
void named_barrier(Worker& worker, const Block& block, const uint32_t* waiting);
void cluster_barrier(Worker& worker);
void warp_collective(Worker& worker, const Block& block, unsigned warp, uint32_t lanes,
                     bool orders_memory);

// The beginning of the error text of an interrupted thread; `pc` is the next instruction that it would
// execute.
std::string interrupted_place(const void* pc);

#else

inline void launch_begins(Worker&) {}
inline void launch_ends(Worker&) {}
inline void block_begins(Worker&, unsigned) {}
inline void block_ends(Worker&, unsigned) {}
inline void block_barrier(Worker&, const Block&) {}
inline void named_barrier(Worker&, const Block&, const uint32_t*) {}
inline void cluster_barrier(Worker&) {}
inline void warp_collective(Worker&, const Block&, unsigned, uint32_t, bool) {}
inline std::string interrupted_place(const void*) { return {}; }

#endif

}  // namespace simt::observe
