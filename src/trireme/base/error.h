// The errors that leave the library: what went wrong, what to do about it, and where it happened.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace trireme {

/// What is known of the place of an error, for programs; the sentence tells people the same.
struct Where {
  std::optional<int> rank = {};  ///< that met the error
  std::optional<int> peer = {};  ///< the rank at fault
  std::optional<int64_t> step = {};
  std::optional<int> stage = {};
  std::optional<int64_t> micro_batch = {};
  std::string instruction = {};  ///< "Backward 1"
  std::string parameter = {};    ///< its name, or that of another tensor of the training
  std::string key = {};          ///< of the config: "train.steps"
  std::string file = {};
  bool operator==(const Where&) const = default;
};

/// The one list of the fields: `visit(name, field)` for each.
template <typename Place, typename Visit>
void visit_where(Place& where, Visit visit) {
  visit("rank", where.rank);
  visit("peer", where.peer);
  visit("step", where.step);
  visit("stage", where.stage);
  visit("micro_batch", where.micro_batch);
  visit("instruction", where.instruction);
  visit("parameter", where.parameter);
  visit("key", where.key);
  visit("file", where.file);
}

/// Ends an operation. `what()` is the cause, then the cure on a line of its own where there is one.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& cause, const std::string& cure = {}, Where where = {})
      : std::runtime_error(cure.empty() ? cause : cause + "\n  " + cure), where_(std::move(where)) {}

  const Where& where() const { return where_; }

 private:
  Where where_;
};

/// `where`, with the fields of `outer` for what it does not know.
Where completed(Where where, const Where& outer);

/// The first line of what an exception says, and the lines below it: "" where it names no cure.
std::string cause_of(const std::exception& error);
std::string cure_of(const std::exception& error);

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
