// What a barrier, a load from L2 and a word passed between blocks cost, and a vector passed between
// all blocks. In an exchange the data is its own flag: a word holds the step's number, and readers
// poll until it does. Every block owns a slice of the vector; two buffers alternate, so no reader
// can miss a word: a block writes step t + 2 only after it has read all of t + 1, which every block
// wrote after it had read all of t. The host launches the exchange cooperatively, with zeroed
// buffers, and a width that the blocks divide. Used by latency.py.
#include "common/intrinsics.cuh"

// A wait that outlasts this many polls gives up and says so, lest a mistake hang the GPU.
constexpr Int32 kMaxPolls = 1 << 22;

namespace micro {

__device__ __forceinline__ UInt64 nanoseconds() {
  UInt64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ uint4 load_16_bytes_relaxed(const UInt32* address) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ bool wait_for(const UInt32* word, UInt32 expected) {
  for (Int32 poll = 0; poll < kMaxPolls; ++poll) {
    if (load_relaxed(word) == expected) return true;
  }
  return false;
}

__device__ __forceinline__ bool wait_for_4(const UInt32* words, UInt32 expected) {
  for (Int32 poll = 0; poll < kMaxPolls; ++poll) {
    const uint4 v = load_16_bytes_relaxed(words);
    if (v.x == expected && v.y == expected && v.z == expected && v.w == expected) return true;
  }
  return false;
}

}  // namespace micro

extern "C" __global__ void spin_clocks(Int64 num_clocks, Int64* result) {
  const UInt64 start_time = micro::nanoseconds();
  const Int64 start = clock64();
  while (clock64() - start < num_clocks) {
  }
  result[0] = clock64() - start;
  result[1] = micro::nanoseconds() - start_time;
}

extern "C" __global__ void block_barrier(Int32 num_rounds, Int64* clocks) {
  __syncthreads();  // All threads start together.
  const Int64 start = clock64();
  for (Int32 round = 0; round < num_rounds; ++round) {
    __syncthreads();  // The barrier that is timed.
  }
  if (threadIdx.x == 0) clocks[0] = clock64() - start;
}

// The words are 0, so every load depends on the one before and reads the same line or the next.
extern "C" __global__ void relaxed_load(const UInt32* zeros, Int32 num_rounds, Int64* clocks) {
  UInt32 offset = load_relaxed(zeros);
  const Int64 start = clock64();
  for (Int32 round = 0; round < num_rounds; ++round) offset += load_relaxed(zeros + offset);
  clocks[0] = clock64() - start + offset;
}

extern "C" __global__ void acquire_load(const UInt32* zeros, Int32 num_rounds, Int64* clocks) {
  UInt32 offset = load_acquire(zeros);
  const Int64 start = clock64();
  for (Int32 round = 0; round < num_rounds; ++round) offset += load_acquire(zeros + offset);
  clocks[0] = clock64() - start + offset;
}

// Each word is the place of the next one, in another line, so every load depends on the one before.
extern "C" __global__ void chase(const UInt32* next, Int32 num_rounds, Int64* clocks) {
  UInt32 place = 0;
  const Int64 start = clock64();
  for (Int32 round = 0; round < num_rounds; ++round) place = next[place];
  clocks[0] = clock64() - start;
  clocks[1] = place;  // The loop stays.
}

// A warp reads `kStride` words apart, from as few lines as the first-level cache holds after the first round,
// and has kLoads loads on their way.
template <int kStride, int kLoads>
__global__ void strided_loads(const UInt32* zeros, Int32 num_rounds, Int64* clocks) {
  UInt32 sum = 0;
  Int64 start = 0;
  for (Int32 round = 0; round <= num_rounds; ++round) {
    UInt32 part = sum;
#pragma unroll
    for (int n = 0; n < kLoads; ++n) part += zeros[kStride * (32 * n + threadIdx.x) + sum];
    sum = part;
    if (round == 0) start = clock64() + part;
  }
  if (threadIdx.x == 0) clocks[0] = clock64() - start + sum;
}

// Block 0 and another pass a number back and forth through two words of different lines.
extern "C" __global__ void ping_pong(UInt32* words, Int32 partner, Int32 num_rounds, Int64* clocks,
                                     UInt32* gave_up) {
  UInt32* there = words;
  UInt32* back = words + 64;
  if (blockIdx.x == 0) {
    const Int64 start = clock64();
    for (Int32 round = 1; round <= num_rounds; ++round) {
      store_relaxed(there, round);
      if (!micro::wait_for(back, round)) {
        *gave_up = 1;
        return;
      }
    }
    clocks[0] = clock64() - start;
  } else if (blockIdx.x == partner) {
    for (Int32 round = 1; round <= num_rounds; ++round) {
      if (!micro::wait_for(there, round)) return;
      store_relaxed(back, round);
    }
  }
}

// A poll takes kWordsPerPoll words, 1 or 4. Every slice is written to kCopies vectors, and a block
// reads one of them: all blocks reading the same few lines would wait for each other at the L2.
template <int kWordsPerPoll, int kCopies>
__global__ void exchange(UInt32* buffers, Int32 width, Int32 num_steps, Int64* result,
                         UInt32* gave_up) {
  const Int32 slice = width / gridDim.x;
  const UInt64 start = micro::nanoseconds();
  for (Int32 step = 1; step <= num_steps; ++step) {
    UInt32* buffer = buffers + (step & 1) * kCopies * width;
    for (Int32 i = threadIdx.x; i < slice; i += blockDim.x) {
#pragma unroll
      for (int copy = 0; copy < kCopies; ++copy) {
        store_relaxed(buffer + copy * width + blockIdx.x * slice + i, step);
      }
    }
    const UInt32* own_copy = buffer + blockIdx.x % kCopies * width;
    bool late = false;
    for (Int32 i = threadIdx.x * kWordsPerPoll; i < width; i += blockDim.x * kWordsPerPoll) {
      late |= kWordsPerPoll == 1 ? !micro::wait_for(own_copy + i, step)
                                 : !micro::wait_for_4(own_copy + i, step);
    }
    // This block has read every word of the step before any of its threads writes the next one.
    if (__syncthreads_or(late)) {
      *gave_up = 1;
      break;
    }
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) result[0] = micro::nanoseconds() - start;
}
