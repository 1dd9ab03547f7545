#include "trireme/train/servers/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

/// Whether every tp position holds the whole parameter.
bool is_whole(const torch::Tensor& parameter) {
  const MeshSpec* spec = mesh_spec(parameter);
  return !spec || spec->layout->is_replicated;
}

std::string key_name(const std::string& name, const torch::Tensor& parameter, const RankGroups& groups) {
  return is_whole(parameter) ? name : fmt::format("{}, part {} of {}", name, groups.place + 1, groups.tp);
}

/// Concatenates the texts of all members, in rank order.
std::string gather_texts(Communicator& comm, const std::string& own) {
  std::vector<int64_t> size = {static_cast<int64_t>(own.size())}, sizes(static_cast<size_t>(comm.size()));
  comm.all_gather(size, sizes);
  const std::vector<size_t> counts(sizes.begin(), sizes.end());
  size_t total = 0;
  for (const size_t count : counts) total += count;
  std::vector<uint8_t> from(own.begin(), own.end()), all(total);
  comm.all_gather_v(from, all, counts);
  return {all.begin(), all.end()};
}

std::string to_text(const std::vector<server::Key>& keys) {
  std::string text;
  for (const server::Key& key : keys) {
    text += fmt::format("{} {} {} {}\n", key.count, key.row_width, key.decays ? 1 : 0, key.name);
  }
  return text;
}

std::vector<server::Key> keys_of(const std::string& text) {
  std::vector<server::Key> keys;
  std::istringstream lines(text);
  for (server::Key key; lines >> key.count >> key.row_width >> key.decays;) {
    std::getline(lines >> std::ws, key.name);
    keys.push_back(key);
  }
  return keys;
}

}  // namespace

ServedModel serve_model(const Config& config, const ModelPart& part, const RankGroups& groups) {
  ServedModel served;
  std::vector<server::Key> own;
  std::vector<std::string> names;  // of the keys of served.parameters
  const auto& entries = part.parameters().entries();
  const auto& shards = part.parameters().shards();
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].stage, entries[a].item) < std::pair(entries[b].stage, entries[b].item);
  });
  for (const size_t number : order) {
    const ParameterStore::Entry& entry = entries[number];
    const auto shard = std::find_if(shards.begin(), shards.end(), [&](const auto& s) { return s.entry == number; });
    const auto count = static_cast<size_t>(local_part(entry.parameter).numel());
    if (count == 0) continue;  // its part of a tensor with fewer rows than tp positions
    ServedParameter& parameter = served.parameters.emplace_back();
    parameter.name = entry.name;
    parameter.entry = static_cast<int>(number);
    parameter.shard = static_cast<size_t>(shard - shards.begin());
    parameter.layer = part.stages()[entry.stage].gradients->sources()[entry.item].unit;
    parameter.is_replicated = groups.tp > 1 && is_whole(entry.parameter);
    parameter.by_rows = config.server.rows && entry.name.ends_with("token.weight");
    parameter.uses = {{entry.stage, entry.item, 0}};
    names.push_back(key_name(entry.name, entry.parameter, groups));
    if (parameter.is_replicated && groups.place > 0) continue;
    const bool decays = config.optimizer.decay == Decay::kAll || entry.is_matrix;
    const auto width = static_cast<size_t>(parameter.by_rows ? entry.parameter.size(1) : 0);
    own.push_back({names.back(), count, width, decays});
  }
  std::map<std::string, int> uses;
  for (const TiedParameter& tied : part.held().tied()) {
    const int number = ++uses[tied.name];
    served.most_uses = std::max(served.most_uses, number + 1);
    if (!tied.use) continue;
    const torch::Tensor& leaf = part.held().source(*tied.use).leaf;
    if (local_part(leaf).numel() == 0) continue;
    const ServedParameter::Use use{tied.use->stage, tied.use->source, number};
    const auto known = std::find_if(served.parameters.begin(), served.parameters.end(),
                                    [&](const ServedParameter& each) { return each.name == tied.name; });
    if (known != served.parameters.end()) {
      known->uses.push_back(use);
      continue;
    }
    ServedParameter& parameter = served.parameters.emplace_back();
    parameter.name = tied.name;
    parameter.is_replicated = groups.tp > 1 && is_whole(leaf);
    parameter.uses = {use};
    names.push_back(key_name(tied.name, leaf, groups));
  }
  served.keys = groups.model() ? keys_of(gather_texts(*groups.model(), to_text(own))) : own;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find_if(served.keys.begin(), served.keys.end(),
                                    [&](const server::Key& key) { return key.name == names[i]; });
    served.parameters[i].key = static_cast<size_t>(found - served.keys.begin());
  }
  std::stable_sort(served.parameters.begin(), served.parameters.end(),
                   [](const ServedParameter& a, const ServedParameter& b) { return a.key < b.key; });
  return served;
}

}  // namespace trireme
