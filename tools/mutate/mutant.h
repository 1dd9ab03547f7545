// The run-time switch of tools/mutate: every mutated place asks here whether its mistake is the active one.
//
// TRIREME_MUTANT=17 activates mutant 17. TRIREME_MUTANT_TRACE names a file with one byte per mutant, in which each
// mutant that is reached sets its byte; it is a shared mapping, so a process that is killed leaves its marks, too.
#pragma once
#pragma GCC system_header  // the comparisons below see operands of any two types
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wnarrowing"
#pragma GCC diagnostic ignored "-Wextra"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

namespace trireme::mutants {

struct Switch {
  int active = 0;
  unsigned char* trace = nullptr;
};

inline Switch read_switch() {
  Switch read;
  if (const char* number = std::getenv("TRIREME_MUTANT")) read.active = std::atoi(number);
  if (const char* path = std::getenv("TRIREME_MUTANT_TRACE")) {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    struct stat status {};
    if (file >= 0 && ::fstat(file, &status) == 0) {
      void* bytes = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_WRITE, MAP_SHARED, file, 0);
      if (bytes != MAP_FAILED) read.trace = static_cast<unsigned char*>(bytes);
    }
    if (file >= 0) ::close(file);
  }
  return read;
}

inline const Switch the_switch = read_switch();

inline bool on(int n) {
  if (the_switch.trace != nullptr) the_switch.trace[n] = 1;
  return the_switch.active == n;
}

/// `!x` is written `Negation{17} ->* x`: of all binary operators this one binds as tightly as `!`.
struct Negation {
  int n;
};

template <typename T>
bool operator->*(Negation negation, const T& value) {
  return on(negation.n) ? static_cast<bool>(value) : !value;
}

/// `a < b` is written `a < Infix{17, less, less_equal} < b`: the operator itself finds its operands, so that a script
/// need not know where they begin and end.
template <typename Right, typename Wrong>
struct Infix {
  int n;
  Right right;
  Wrong wrong;
};

template <typename A, typename Right, typename Wrong>
struct Held {
  const A& a;
  Infix<Right, Wrong> op;

  template <typename B>
  auto with(const B& b) const {
    using Result = std::decay_t<decltype(op.right(a, b))>;
    return on(op.n) ? static_cast<Result>(op.wrong(a, b)) : static_cast<Result>(op.right(a, b));
  }
};

#define TRIREME_INFIX(OPERATOR)                                                    \
  template <typename A, typename Right, typename Wrong>                            \
  Held<A, Right, Wrong> operator OPERATOR(const A& a, Infix<Right, Wrong> op) {    \
    return {a, op};                                                                \
  }                                                                                \
  template <typename A, typename Right, typename Wrong, typename B>                \
  auto operator OPERATOR(const Held<A, Right, Wrong>& held, const B& b) {          \
    return held.with(b);                                                           \
  }
TRIREME_INFIX(<)
TRIREME_INFIX(>)
TRIREME_INFIX(<=)
TRIREME_INFIX(>=)
TRIREME_INFIX(==)
TRIREME_INFIX(!=)
TRIREME_INFIX(+)
TRIREME_INFIX(-)
TRIREME_INFIX(*)
TRIREME_INFIX(/)
TRIREME_INFIX(%)
#undef TRIREME_INFIX

}  // namespace trireme::mutants

#define TRIREME_MUTANT(N, RIGHT, WRONG)                                                                        \
  trireme::mutants::Infix {                                                                                    \
    N, [](const auto& a, const auto& b) { return RIGHT; }, [](const auto& a, const auto& b) { return WRONG; }  \
  }
