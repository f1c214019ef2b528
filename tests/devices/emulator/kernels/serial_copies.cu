// Copies of runs by a thread of a CPU, one run to a place of its own in each row of a buffer.
#include "common/serial_copy.cuh"

struct CopyParams {
  Int64 num_runs;
  Int64 row_bytes;
};

enum Copy : int { kRun, kStream, kMirrored };

// Run i has lengths[i] items, from `source` to byte starts[i] of row i.
template <class Item, int kCopy>
__global__ void serial_copies(const UInt8* source, const Int64* lengths, const Int64* starts,
                              UInt8* target, CopyParams params) {
  for (Int64 i = 0; i < params.num_runs; ++i) {
    UInt8* to = target + i * params.row_bytes + starts[i];
    const Int64 num_bytes = lengths[i] * static_cast<Int64>(sizeof(Item));
    if (kCopy == kRun) copy_run(to, source, num_bytes);
    if (kCopy == kStream) stream_run(to, source, num_bytes);
    if (kCopy == kMirrored) copy_mirrored_run<Item>(to, source, lengths[i]);
  }
  finish_streaming();
}
