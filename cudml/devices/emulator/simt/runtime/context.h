// Stacks to run threads on, and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace simt {

// A stack with a suspended computation on it.
struct Context {
  void* stack_pointer = nullptr;
  char* bottom = nullptr;
  char* top = nullptr;
};

// Suspends the running computation into `from` and resumes `to`; returns when `from` is resumed.
// Floating-point control words are not saved, because no kernel changes them.
void switch_context(Context& from, const Context& to);

// Makes `context` start with `entry`, which must never return.
void prepare_context(Context& context, void (*entry)());

// The stacks of one operating-system thread; they are kept from launch to launch.
class ContextPool {
 public:
  ~ContextPool();

  // Called with no context in use. Frees all stacks when the size changes.
  void begin_launch(size_t stack_bytes);
  size_t stack_bytes() const { return stack_bytes_; }
  Context* take();
  void give_back(Context* context) { free_.push_back(context); }
  // Called after an aborted launch; abandons the computations on all stacks.
  void give_back_all();

  // Whether the context's computation has reached the far end of its stack.
  static bool overflowed(const Context& context);

 private:
  struct Slab {
    char* memory;
    size_t bytes;
  };

  void add_slab();
  void free_slabs();

  size_t stack_bytes_ = 0;
  std::vector<Slab> slabs_;
  std::vector<Context*> all_, free_;
};

}  // namespace simt
