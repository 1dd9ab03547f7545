#include "trireme/parallel/automatic/cut_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

/// Values that cross a cut before `call`: results made before it and read after it, and the input.
std::vector<int> crossing(const CapturedGraph& graph, int call) {
  std::vector<int> values;
  for (size_t v = 0; v < graph.values().size(); ++v) {
    const CapturedValue& value = graph.values()[v];
    const bool travels = value.kind == CapturedValue::Kind::kInput || value.producer >= 0;
    const int index = static_cast<int>(v);
    if (travels && value.producer < call && graph.last_use(index) >= call) values.push_back(index);
  }
  return values;
}

/// Packs the tensors that cross a cut into one, and unpacks them.
class Parcel {
 public:
  Parcel() = default;
  Parcel(const CapturedGraph& graph, std::vector<int> values) : graph_(&graph), values_(std::move(values)) {
    for (const int v : values_) {
      const CapturedValue& value = graph.value(v);
      if (!value.is_floating()) continue;
      if (type_ != at::ScalarType::Undefined && type_ != value.type) {
        throw UsageError(fmt::format("a cut behind the use of {} would send {} and {} together",
                                     graph.near(value.producer + 1), c10::toString(type_), c10::toString(value.type)),
                         "cut elsewhere, or let the module compute in one type there");
      }
      type_ = value.type;
    }
    if (type_ == at::ScalarType::Undefined) type_ = at::kFloat;
  }

  torch::Tensor pack(const std::vector<at::Tensor>& tensors) const {
    if (is_plain()) return tensors[at(values_[0])];
    std::vector<torch::Tensor> flat;
    for (const int v : values_) flat.push_back(tensors[at(v)].reshape({-1}).to(type_));
    return torch::cat(flat);
  }

  void unpack(const torch::Tensor& parcel, std::vector<at::Tensor>& tensors) const {
    if (is_plain()) {
      tensors[at(values_[0])] = parcel;
      return;
    }
    int64_t offset = 0;
    for (const int v : values_) {
      const CapturedValue& value = graph_->value(v);
      const int64_t count = c10::multiply_integers(value.sizes);
      tensors[at(v)] = parcel.narrow(0, offset, count).view(value.sizes).to(value.type);
      offset += count;
    }
  }

 private:
  bool is_plain() const { return values_.size() == 1 && graph_->value(values_[0]).is_floating(); }
  const CapturedGraph* graph_ = nullptr;
  std::vector<int> values_;
  at::ScalarType type_ = at::ScalarType::Undefined;
};

/// A layer that runs some calls of a graph.
class CapturedLayer : public torch::nn::Module {
 public:
  CapturedLayer(std::shared_ptr<const CapturedGraph> graph, int first, int last)
      : torch::nn::Module(fmt::format("calls {}-{}", first, last - 1)),
        graph_(std::move(graph)),
        first_(first),
        last_(last) {
    if (first_ > 0) in_ = Parcel(*graph_, crossing(*graph_, first_));
    if (last_ < graph_->num_calls()) out_ = Parcel(*graph_, crossing(*graph_, last_));
    std::set<int> seen;
    for (int i = first; i < last; ++i) {
      for (const int v : graph_->call(i).inputs) {
        const CapturedValue& value = graph_->value(v);
        if (!seen.insert(v).second) continue;
        std::string name = value.name;
        std::replace(name.begin(), name.end(), '.', '/');
        if (value.kind == CapturedValue::Kind::kParameter) {
          register_parameter(name, value.tensor, value.tensor.requires_grad());
        } else if (value.kind == CapturedValue::Kind::kBuffer) {
          register_buffer(name, value.tensor);
        }
      }
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<at::Tensor> values = graph_->start({first_ == 0 ? x : torch::Tensor()});
    if (first_ > 0) in_.unpack(x, values);
    graph_->run(first_, last_, values);
    return last_ == graph_->num_calls() ? values[at(graph_->output())] : out_.pack(values);
  }

 private:
  std::shared_ptr<const CapturedGraph> graph_;
  const int first_, last_;
  Parcel in_, out_;
};

}  // namespace

std::vector<torch::nn::AnyModule> cut_captured(const CapturedGraph& graph, std::vector<int> first_calls) {
  if (graph.inputs().size() != 1) throw UsageError("a module that is cut takes one tensor, and gives one");
  first_calls.push_back(0);
  std::sort(first_calls.begin(), first_calls.end());
  first_calls.erase(std::unique(first_calls.begin(), first_calls.end()), first_calls.end());
  const auto owned = std::make_shared<const CapturedGraph>(graph);
  std::vector<torch::nn::AnyModule> layers;
  for (size_t i = 0; i < first_calls.size(); ++i) {
    const int last = i + 1 < first_calls.size() ? first_calls[i + 1] : graph.num_calls();
    layers.emplace_back(std::make_shared<CapturedLayer>(owned, first_calls[i], last));
  }
  return layers;
}

int find_cut(const CapturedGraph& graph, const std::string& point) {
  for (const auto& [name, call] : graph.marks()) {
    if (name == point && call > 0 && call < graph.num_calls()) return call;
  }
  std::set<std::string> names;
  for (int i = 0; i < graph.num_calls(); ++i) {
    for (const int v : graph.call(i).inputs) {
      const CapturedValue& value = graph.value(v);
      if (value.kind != CapturedValue::Kind::kParameter) continue;
      names.insert(value.name.substr(0, value.name.rfind('.')));
      if (value.name != point && !value.name.starts_with(point + ".")) continue;
      if (i == 0) throw UsageError(fmt::format("nothing comes before {}, so there is nothing to cut", point));
      return i;
    }
  }
  for (const auto& [name, call] : graph.marks()) names.insert(name);
  const std::optional<std::string> meant = nearest(point, names);
  throw UsageError(fmt::format("the module has no point {} to cut at", point),
                   meant ? fmt::format("did you mean {}?", *meant)
                         : fmt::format("give a name of mark(), or a module with parameters: {}", join(names, ", ")));
}

std::vector<torch::nn::AnyModule> cut_module(torch::nn::Module& module, const torch::Tensor& example,
                                             const std::function<torch::Tensor(const torch::Tensor&)>& forward,
                                             const std::vector<std::string>& points) {
  const CapturedGraph graph = capture(module, {example}, [&](const auto& in) { return forward(in[0]); });
  std::vector<int> calls;
  for (const std::string& point : points) calls.push_back(find_cut(graph, point));
  return cut_captured(graph, std::move(calls));
}

}  // namespace trireme
