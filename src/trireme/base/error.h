// The errors that leave the library: what went wrong, and what to do about it.
#pragma once

#include <stdexcept>
#include <string>

namespace trireme {

/// Ends an operation. `what()` is the cause, then the cure on a line of its own where there is one.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& cause, const std::string& cure = {})
      : std::runtime_error(cure.empty() ? cause : cause + "\n  " + cure) {}
};

/// The caller asked for something that cannot be: a wrong flag, rank, size or name. Programs exit with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A call to the operating system failed. `doing` reads like "bind 127.0.0.1:2900".
class SystemError : public Error {
 public:
  SystemError(const std::string& doing, int error_number, const std::string& cure = {});
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

}  // namespace trireme
