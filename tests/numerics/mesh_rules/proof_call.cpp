#include "numerics/mesh_rules/proof_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// The words of a line; brackets hold them together.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= line.size(); ++i) {
    if (i < line.size() && (line[i] == '{' || line[i] == '[')) ++depth;
    if (i < line.size() && (line[i] == '}' || line[i] == ']')) --depth;
    if (i < line.size() && (line[i] != ' ' || depth > 0)) continue;
    if (i > start) words.push_back(line.substr(start, i - start));
    start = i + 1;
  }
  return words;
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<int64_t> integers(std::string_view text) {
  std::vector<int64_t> list;
  for (const std::string& part : split_at_commas(text)) list.push_back(std::stoll(part));
  return list;
}

uint64_t seed_of(const std::string& line) {
  uint64_t seed = 14695981039346656037u;
  for (const char c : line) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return seed;
}

bool is_optional_list(const c10::TypePtr& type) {
  if (type->kind() != c10::TypeKind::ListType) return false;
  return type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType;
}

/// Calls `change` with each tensor of a value, in order.
template <typename Change>
c10::IValue with_tensors(const c10::IValue& value, Change change) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isTensor() ? std::optional<at::Tensor>(change(element.toTensor())) : std::nullopt);
    }
    return list;
  }
  return value;
}

}  // namespace

ProofCall::ProofCall(const std::string& line) : line_(line), generator_(at::detail::createCPUGenerator(seed_of(line))) {
  std::vector<std::string_view> words = words_of(line_);
  std::string_view name = words.at(0);
  if (name.starts_with('1')) {
    first_gradient_only_ = true;
    name.remove_prefix(1);
  }
  for (; name.starts_with('-') || name.starts_with('?'); name.remove_prefix(1)) {
    checks_gradient_ = false;
    checks_values_ = checks_values_ && name[0] != '?';
  }
  if (name.find("backward") != std::string_view::npos) checks_gradient_ = false;
  name_ = fmt::format("aten::{}", name);
  const size_t dot = name_.find('.');
  const auto op = c10::Dispatcher::singleton().findSchema(
      {name_.substr(0, dot), dot == std::string::npos ? "" : name_.substr(dot + 1)});
  if (!op) throw UsageError(fmt::format("libtorch has no operator {}", name_));
  is_composite_ = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  const auto& schema = op->schema().arguments();
  if (words.size() - 1 > schema.size()) throw UsageError(fmt::format("\"{}\" has too many arguments", line_));
  for (size_t i = 0; i < schema.size(); ++i) {
    const size_t before = tensors_.size();
    if (i + 1 < words.size()) {
      arguments_.push_back(argument(words[i + 1], schema[i]));
    } else if (schema[i].default_value()) {
      arguments_.push_back(*schema[i].default_value());
    } else {
      throw UsageError(fmt::format("\"{}\" lacks its argument {}", line_, schema[i].name()));
    }
    const bool written = schema[i].alias_info() != nullptr && schema[i].alias_info()->isWrite();
    written_.resize(written_.size() + tensors_.size() - before, written);
  }
}

uint64_t ProofCall::seed() const { return seed_of(line_); }

at::Tensor ProofCall::draw(std::string_view token) {
  const size_t open = token.find('[');
  const std::vector<int64_t> sizes = integers(token.substr(open + 1, token.size() - open - 2));
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  switch (token[0]) {
    case 'x':
    case 'X':
      tensor.normal_(0, 1, generator_);
      break;
    case 'p':
    case 'P':
      tensor.uniform_(0.2, 2, generator_);
      break;
    case 'u':
      tensor.uniform_(0.05, 0.95, generator_);
      break;
    case 'b':
      tensor = tensor.bernoulli_(0.5, generator_).to(at::kBool);
      break;
    case 'k':
      tensor = at::randperm(sizes.at(0), generator_, at::kLong);
      break;
    case 'i':
      tensor = at::empty(sizes, at::kLong).random_(0, std::stoll(std::string(token.substr(1, open - 1))), generator_);
      break;
    default:
      throw UsageError(fmt::format("\"{}\" in \"{}\" is no tensor", token, line_));
  }
  tensors_.push_back(tensor);
  differentiable_.push_back(tensor.is_floating_point() && !std::isupper(static_cast<unsigned char>(token[0])));
  return tensor;
}

c10::IValue ProofCall::list(std::string_view inside, bool optional) {
  c10::List<at::Tensor> all;
  c10::List<std::optional<at::Tensor>> some;
  for (const std::string_view word : words_of(inside)) {
    if (optional) {
      some.push_back(word == "_" ? std::nullopt : std::optional<at::Tensor>(draw(word)));
    } else {
      all.push_back(draw(word));
    }
  }
  return optional ? c10::IValue(some) : c10::IValue(all);
}

c10::IValue ProofCall::argument(std::string_view token, const c10::Argument& of) {
  const std::string text(token);
  if (text == "_") return {};
  if (text == "n") return at::Tensor();
  if (text == "true" || text == "false") return text == "true";
  if (text.starts_with('\'')) return text.substr(1, text.size() - 2);
  if (text.starts_with('{')) return list(token.substr(1, token.size() - 2), is_optional_list(of.type()));
  if (text.starts_with('[')) {
    const std::string_view inside = token.substr(1, token.size() - 2);
    if (!inside.starts_with("true") && !inside.starts_with("false")) return integers(inside);
    c10::List<bool> flags;
    for (const std::string& flag : split_at_commas(inside)) flags.push_back(flag == "true");
    return flags;
  }
  if (std::isalpha(static_cast<unsigned char>(text[0]))) return draw(token);
  if (text.find('.') != std::string::npos) return std::stod(text);
  const int64_t number = std::stoll(text);
  return of.type()->kind() == c10::TypeKind::FloatType ? c10::IValue(static_cast<double>(number)) : c10::IValue(number);
}

std::vector<at::Tensor> ProofCall::run(const std::vector<at::Tensor>& tensors) const {
  const size_t dot = name_.find('.');
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      name_.substr(0, dot).c_str(), dot == std::string::npos ? "" : name_.substr(dot + 1).c_str());
  torch::jit::Stack stack;
  size_t at = 0;
  for (const c10::IValue& argument : arguments_) {
    stack.push_back(with_tensors(argument, [&](const at::Tensor&) { return tensors[at++]; }));
  }
  op.callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) results.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
    } else if (value.isScalar()) {
      results.push_back(at::scalar_tensor(value.toScalar(), at::kDouble));
    } else if (value.isBool()) {
      results.push_back(at::scalar_tensor(value.toBool() ? 1 : 0, at::kDouble));
    }
  }
  return results;
}

}  // namespace trireme
