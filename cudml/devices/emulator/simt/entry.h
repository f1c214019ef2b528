// How a kernel function becomes a loop over the threads of a block, and how that loop survives
// waiting.
//
// A block starts as a plain loop: threads run one after the other as ordinary calls on one stack, which costs
// nothing and lets the compiler vectorise. Several threads have to be alive at once only when one has to wait
// for another. Nothing needs to be moved for that, because the loop already runs on a stack of its own: the
// waiting thread keeps this stack, the runtime marks the block as *promoted*, and the threads that have not
// started run on other stacks. The first waiter's stack holds "the rest of its kernel call, then the rest of
// this loop". In a promoted block, the rest of the loop only asks the runtime whether to run another fresh
// thread here.
#pragma once

// std::index_sequence without <utility>, which would cost every module compile time.
template <size_t... I>
struct SimtIndices {};
template <size_t N, size_t... I>
struct SimtMakeIndices : SimtMakeIndices<N - 1, N - 1, I...> {};
template <size_t... I>
struct SimtMakeIndices<0, I...> {
  using type = SimtIndices<I...>;
};

// Inlines the kernel and everything it calls into the loop. Instrumented code keeps its calls, so that
// reports can name functions.
#ifdef SIMT_CHECK
#define SIMT_ENTRY_FLATTEN
#else
#define SIMT_ENTRY_FLATTEN __attribute__((flatten))
#endif

// The plain loop's next thread; false after the last one.
__forceinline__ bool simt_next_plain() {
  if (++threadIdx.x < blockDim.x) return true;
  threadIdx.x = 0;
  if (++threadIdx.y < blockDim.y) return true;
  threadIdx.y = 0;
  return ++threadIdx.z < blockDim.z;
}

// The linker's name for the first byte of the module.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];

template <auto Kernel>
struct SimtEntry;

template <class... Args, void (*Kernel)(Args...)>
struct SimtEntry<Kernel> {
  // The arguments are values whose address is never taken: they stay in registers across the loop.
  // There is a single call of the kernel, so that its locals are on the stack only once.
  static __forceinline__ void run_threads(Args... args) {
    if (!simt_promoted) threadIdx = {0, 0, 0};
    do Kernel(args...);
    while (__builtin_expect(simt_promoted != nullptr, 0) ? simt_next_fresh() : simt_next_plain());
  }

  template <size_t... I>
  static __forceinline__ void unpack(void** arguments, SimtIndices<I...>) {
    run_threads(*static_cast<Args*>(arguments[I])...);
  }

  static SIMT_ENTRY_FLATTEN void run(void** arguments) {
    unpack(arguments, typename SimtMakeIndices<sizeof...(Args)>::type{});
  }

  static constexpr unsigned long long argument_bytes[] = {sizeof(Args)..., 0};
  static constexpr SimtKernel kernel = {&run, argument_bytes, __ehdr_start};
};

#define SIMT_EXPORT(...)                                                                      \
  extern "C" __attribute__((visibility("default"))) int simt_kernel(const SimtLaunch* launch, \
                                                                    void** arguments) {       \
    return simt_launch(launch, &SimtEntry<(__VA_ARGS__)>::kernel, arguments);                 \
  }
