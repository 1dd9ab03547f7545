#include "trireme/train/compression.h"

#include <fmt/format.h>

#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/compression.h"
#include "trireme/tensor/device.h"

namespace trireme {

std::unique_ptr<CompressedReducer> make_compressor(const Config& config, Communicator* replicas,
                                                   std::vector<GroupLayout> groups, const torch::Device& device) {
  const CompressionOptions options = compression_options(config);
  if (options.method == Method::kNone || replicas == nullptr || config.parallel.aggregation == Aggregation::kServer)
    return nullptr;
  if (options.method == Method::kOneBitAdam) return nullptr;
  return std::make_unique<CompressedReducer>(*replicas, options, std::move(groups), make_processor(device));
}

std::string PieceName::to_string() const {
  return fmt::format("compression/{}/{}/{}/{}/{}/{}", replica, place, static_cast<int>(kind), first, total, name);
}

PieceName PieceName::parse(const std::string& text) {
  const auto parts = split(text, '/');
  const auto number = [&](size_t i) {
    size_t value = 0;
    const std::string_view part = i < parts.size() ? parts[i] : std::string_view();
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (part.empty() || error != std::errc() || end != part.data() + part.size()) {
      throw Error(fmt::format("{} is not the name of what compression keeps", text), "the checkpoint is damaged");
    }
    return value;
  };
  PieceName name;
  name.replica = static_cast<int>(number(1));
  name.place = static_cast<int>(number(2));
  name.kind = static_cast<StateKind>(std::min<size_t>(number(3), 2));
  name.first = number(4);
  name.total = number(5);
  if (parts.size() < 7) throw Error(fmt::format("{} is not the name of what compression keeps", text));
  name.name = text.substr(static_cast<size_t>(parts[6].data() - text.data()));
  return name;
}

}  // namespace trireme
