// What mesh tensors need to know of an operator's schema.
#include <mutex>
#include <set>

#include "trireme/tensor/decision.h"

namespace trireme {
namespace {

bool is_pointwise_foreach(const std::string& name) {
  static const std::set<std::string, std::less<>> kNames = {
      "abs",     "add",     "addcdiv", "addcmul", "clamp_max", "clamp_min",  "copy", "div",  "exp", "lerp",
      "maximum", "minimum", "mul",     "neg",     "pow",       "reciprocal", "sign", "sqrt", "sub", "zero"};
  constexpr std::string_view kPrefix = "aten::_foreach_";
  if (name.starts_with("aten::_fused_adam") || name.starts_with("aten::_fused_sgd")) return true;
  if (!name.starts_with(kPrefix)) return false;
  std::string_view rest = std::string_view(name).substr(kPrefix.size());
  rest = rest.substr(0, rest.find('.'));
  if (rest.ends_with('_')) rest.remove_suffix(1);
  return kNames.contains(rest);
}

bool matters(const c10::Argument& argument) {
  const c10::TypePtr type = argument.type()->kind() == c10::TypeKind::OptionalType
                                ? argument.type()->expectRef<c10::OptionalType>().getElementType()
                                : argument.type();
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
      return true;
    case c10::TypeKind::ListType: {
      const auto element = type->expectRef<c10::ListType>().getElementType()->kind();
      return element == c10::TypeKind::IntType || element == c10::TypeKind::SymIntType ||
             element == c10::TypeKind::BoolType;
    }
    default:
      return false;  // factors, generators, devices: they do not affect layouts
  }
}

OperatorInfo read(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OperatorInfo info;
  info.name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  info.num_arguments = schema.arguments().size();
  for (const c10::Argument& argument : schema.arguments()) {
    info.keyed.push_back(matters(argument));
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    info.written.push_back(written);
    info.changes_in_place = info.changes_in_place || written;
  }
  for (const c10::Argument& result : schema.returns()) {
    int which = -1;
    if (result.alias_info() != nullptr && result.alias_info()->isWrite()) {
      for (size_t i = 0; i < info.num_arguments && which < 0; ++i) {
        const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
        if (info.written[i] && alias->beforeSets() == result.alias_info()->beforeSets()) which = static_cast<int>(i);
      }
    }
    info.returned.push_back(which);
  }
  info.is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !has_rule(info.name);
  // It writes its running statistics, although its schema does not say so.
  if (info.name == "aten::native_batch_norm") info.written[3] = info.written[4] = true;
  using Family = OperatorInfo::Family;
  static const std::set<std::string> kTurning = {"aten::t_",           "aten::transpose_",    "aten::squeeze_",
                                                 "aten::squeeze_.dim", "aten::squeeze_.dims", "aten::unsqueeze_"};
  static const std::set<std::string> kResizing = {"aten::resize_", "aten::set_", "aten::as_strided_",
                                                  "aten::resize_as_"};
  if (is_pointwise_foreach(info.name)) info.family = Family::kForeach;
  if (info.name == "aten::_fused_sdp_choice") info.family = Family::kAsItIs;
  if (kTurning.contains(info.name)) info.family = Family::kTurning;
  if (kResizing.contains(info.name)) info.family = Family::kResizing;
  static const std::set<std::string> kStrided = {"aten::as_strided", "aten::as_strided_scatter"};
  if (kStrided.contains(info.name)) info.family = Family::kStrided;
  info.is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  return info;
}

}  // namespace

const OperatorInfo& OperatorInfo::of(const c10::OperatorHandle& op) {
  // Operators live as long as the process. Each thread reads the global table once per operator.
  thread_local std::unordered_map<const c10::FunctionSchema*, const OperatorInfo*> known;
  const OperatorInfo*& entry = known[&op.schema()];
  if (entry == nullptr) {
    static std::mutex mutex;
    static std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OperatorInfo>> all;
    const std::lock_guard lock(mutex);
    std::unique_ptr<OperatorInfo>& info = all[&op.schema()];
    if (!info) info = std::make_unique<OperatorInfo>(read(op));
    entry = info.get();
  }
  return *entry;
}

}  // namespace trireme
