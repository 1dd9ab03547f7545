// Writing: a header whose end is aligned, then the data, large elements first.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/json_scanner.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme {
namespace {

constexpr uint64_t kAlignment = 64;

}  // namespace

std::vector<size_t> safetensors_order(std::span<const TensorInfo> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size_of(tensors[a].type) > size_of(tensors[b].type); });
  return order;
}

std::string make_safetensors_header(SafetensorsHeader& header) {
  std::set<std::string_view> names;
  std::string json = "{";
  const auto separate = [&json] {
    if (json.size() > 1) json += ',';
  };
  const auto quoted = [](std::string_view text) {
    try {
      return json_text(text);
    } catch (const JsonError&) {
      throw UsageError(fmt::format("the name or text \"{}\" is not UTF-8", text));
    }
  };
  if (!header.metadata.empty()) {
    json += "\"__metadata__\":{";
    bool first = true;
    for (const auto& [name, value] : header.metadata) {
      json += fmt::format("{}{}:{}", first ? "" : ",", quoted(name), quoted(value));
      first = false;
    }
    json += '}';
  }
  uint64_t end = 0;
  for (StoredTensor& tensor : header.tensors) {
    const TensorInfo& info = tensor.info;
    if (info.name == "__metadata__") throw UsageError("safetensors keeps the name __metadata__ for itself");
    if (!names.insert(info.name).second) throw UsageError(fmt::format("tensor {} is given twice", info.name));
    tensor.offset = end;
    end += info.num_bytes();
    separate();
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", quoted(info.name),
                        safetensors_name(info.type), fmt::join(info.shape, ","), tensor.offset, end);
  }
  json += '}';
  const uint64_t used = kLengthBytes + json.size();
  json.append((used + kAlignment - 1) / kAlignment * kAlignment - used, ' ');
  header.num_bytes = kLengthBytes + json.size();
  for (StoredTensor& tensor : header.tensors) tensor.offset += header.num_bytes;
  const uint64_t length = json.size();
  std::string text(kLengthBytes, '\0');
  std::memcpy(text.data(), &length, kLengthBytes);
  return text + json;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const TextMap& metadata) {
  std::vector<TensorInfo> infos;
  for (const TensorView& tensor : tensors) {
    if (tensor.bytes.size() != tensor.info.num_bytes()) {
      throw UsageError(fmt::format("tensor {} has {} bytes, but its shape and type need {}", tensor.info.name,
                                   tensor.bytes.size(), tensor.info.num_bytes()));
    }
    infos.push_back(tensor.info);
  }
  const std::vector<size_t> order = safetensors_order(infos);
  SafetensorsHeader header{{}, metadata, 0};
  for (const size_t index : order) header.tensors.push_back({infos[index], 0});
  const std::string start = make_safetensors_header(header);

  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const std::filesystem::path temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  remove_tree(temporary);
  File file = File::create(temporary);
  try {
    file.write(start);
    for (const size_t index : order) file.write(tensors[index].bytes);
    file.sync();
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

}  // namespace trireme
