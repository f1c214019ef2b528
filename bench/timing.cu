// What the timer puts on the stream around the call it measures.

extern "C" __global__ void delay(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    __nanosleep(200);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

// Reads every word, so that the cache holds these and nothing else, and no line of it has to be
// written back.
extern "C" __global__ void read_through(const uint4* words, unsigned long long count,
                                        unsigned* never) {
  unsigned mixed = 0;
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
       i += step) {
    const uint4 v = words[i];
    mixed |= v.x | v.y | v.z | v.w;
  }
  if (mixed) *never = mixed;  // The buffer is all zeros.
}
