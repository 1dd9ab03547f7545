// Named points where tests make things go wrong, on demand of the variable TRIREME_FAULT.
//
//   TRIREME_FAULT="rank=2,step=17,point=checkpoint.after_rename,kind=kill"
//
// Several rules are separated by ';'. `point` and `kind` are needed; without `rank` or `step` any matches.
// Passages are counted where rank and step match; `count=K` acts at the K-th only, without it every passage acts.
//
//   kind         at the point
//   kill         SIGKILL to this process
//   stop         SIGSTOP to this process: alive, but not moving
//   throw        throws Error
//   delay:MS     sleeps
//   errno:NAME   fault_errno() returns it, so that the caller acts as if the system call had failed;
//                fault_point() throws SystemError
//
// Threads: all. Without the variable a point costs one branch.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace trireme {

/// Which rank and step rules see. Count for the calling thread, and for threads that have set none.
/// set_fault_rank throws UsageError where TRIREME_FAULT cannot be understood: call it early.
void set_fault_rank(int rank);
void set_fault_step(uint64_t step);

/// Replaces the rules, as if TRIREME_FAULT held `text`; none if empty. Throws UsageError and keeps the old ones.
void set_faults(std::string_view text);

namespace fault_detail {
extern std::atomic<bool> armed;
int pass(std::string_view point);  // the errno to pretend, or 0
[[noreturn]] void throw_errno(std::string_view point, int error_number);
}  // namespace fault_detail

inline bool faults_armed() { return fault_detail::armed.load(std::memory_order_relaxed); }

/// A passage through `point`. The first one throws UsageError where TRIREME_FAULT cannot be understood.
inline void fault_point(std::string_view point) {
  if (faults_armed()) [[unlikely]] {
    if (const int error_number = fault_detail::pass(point)) fault_detail::throw_errno(point, error_number);
  }
}

/// A passage through `point` just before a system call: the errno to pretend, or 0 to make the call.
inline int fault_errno(std::string_view point) {
  if (faults_armed()) [[unlikely]]
    return fault_detail::pass(point);
  return 0;
}

}  // namespace trireme
