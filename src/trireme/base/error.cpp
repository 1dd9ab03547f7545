#include "trireme/base/error.h"

#include <system_error>

namespace trireme {

Where completed(Where where, const Where& outer) {
  const auto complete = [](auto& field, const auto& other) {
    if (field == std::remove_cvref_t<decltype(field)>{}) field = other;
  };
  complete(where.rank, outer.rank);
  complete(where.peer, outer.peer);
  complete(where.step, outer.step);
  complete(where.stage, outer.stage);
  complete(where.micro_batch, outer.micro_batch);
  complete(where.instruction, outer.instruction);
  complete(where.parameter, outer.parameter);
  complete(where.key, outer.key);
  complete(where.file, outer.file);
  return where;
}

std::string cause_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

std::string cure_of(const std::exception& error) {
  const std::string text = error.what();
  const size_t below = text.find_first_not_of("\n ", text.find('\n'));
  return below == std::string::npos ? "" : text.substr(below);
}

SystemError::SystemError(const std::string& doing, int error_number, const std::string& cure)
    : Error("cannot " + doing + ": " + std::generic_category().message(error_number), cure),
      error_number_(error_number) {}

}  // namespace trireme
