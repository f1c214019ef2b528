// The context switch, written per architecture, and the memory of the stacks.
#include "context.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

// simt_switch_stack(void** save, void* load): pushes the registers that the calling convention preserves
// across calls, stores the stack pointer in *save, makes `load` the new one, and pops the same registers.
#if defined(__x86_64__)
asm(R"(
  .text
  .p2align 4
  .globl simt_switch_stack
  .hidden simt_switch_stack
  .type simt_switch_stack, @function
simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size simt_switch_stack, .-simt_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .p2align 4
  .globl simt_switch_stack
  .hidden simt_switch_stack
  .type simt_switch_stack, %function
simt_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size simt_switch_stack, .-simt_switch_stack
)");
#else
#error "the CPU emulator has a context switch for x86-64 and aarch64 only"
#endif

extern "C" void simt_switch_stack(void** save, void* load);

namespace simt {

namespace {

constexpr size_t kStacksPerSlab = 64;

// Lies at the far end of every stack. A whole cache line, because frames have gaps that are not written.
constexpr uint64_t kCanary[8] = {0x5afe57ac5afe57acu, 1, 2, 3, 4, 5, 6, 0x5afe57ac5afe57acu};

// Stack tops are spread over this many cache lines; otherwise the hot frames of all threads of a block would
// compete for the same few cache sets.
constexpr size_t kColours = 64, kCacheLine = 64;

}  // namespace

void switch_context(Context& from, const Context& to) {
  simt_switch_stack(&from.stack_pointer, to.stack_pointer);
}

void prepare_context(Context& context, void (*entry)()) {
#if defined(__x86_64__)
  // From the top: a null return address for `entry`, the address `ret` jumps to, six registers.
  void** frame = reinterpret_cast<void**>(context.top) - 8;
  std::memset(frame, 0, 8 * sizeof(void*));
  frame[6] = reinterpret_cast<void*>(entry);
#else
  // The frame of the switch, with the entry in the place of x30.
  void** frame = reinterpret_cast<void**>(context.top) - 20;
  std::memset(frame, 0, 20 * sizeof(void*));
  frame[11] = reinterpret_cast<void*>(entry);
#endif
  context.stack_pointer = frame;
}

ContextPool::~ContextPool() { free_slabs(); }

void ContextPool::begin_launch(size_t stack_bytes) {
  if (stack_bytes == stack_bytes_) return;
  free_slabs();
  stack_bytes_ = stack_bytes;
}

Context* ContextPool::take() {
  if (free_.empty()) add_slab();
  Context* context = free_.back();
  free_.pop_back();
  return context;
}

void ContextPool::give_back_all() {
  free_ = all_;
  for (Context* context : all_) std::memcpy(context->bottom, kCanary, sizeof kCanary);
}

bool ContextPool::overflowed(const Context& context) {
  return std::memcmp(context.bottom, kCanary, sizeof kCanary) != 0;
}

void ContextPool::add_slab() {
  // Only pages that are touched cost memory. Below the lowest stack there is room for its overflow; another
  // stack overflows into its neighbour until the canary is checked.
  const size_t bytes = (kStacksPerSlab + 1) * stack_bytes_;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  slabs_.push_back({static_cast<char*>(memory), bytes});
  for (size_t i = 1; i <= kStacksPerSlab; i++) {
    Context* context = new Context;
    context->bottom = slabs_.back().memory + i * stack_bytes_;
    context->top = context->bottom + stack_bytes_ - (all_.size() * 5 % kColours) * kCacheLine;
    std::memcpy(context->bottom, kCanary, sizeof kCanary);
    all_.push_back(context);
    free_.push_back(context);
  }
}

void ContextPool::free_slabs() {
  for (Context* context : all_) delete context;
  for (const Slab& slab : slabs_) munmap(slab.memory, slab.bytes);
  all_.clear();
  free_.clear();
  slabs_.clear();
}

}  // namespace simt
