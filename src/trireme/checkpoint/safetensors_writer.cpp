// Writing: a header whose end is aligned, then the data, large elements first.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
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
  const auto add = [&](const std::string& name, const Json& value) {
    try {
      json += fmt::format("{}{}:{}", json.size() > 1 ? "," : "", Json(name).dump(), value.dump());
    } catch (const Json::type_error&) {
      throw UsageError(fmt::format("the name or a text of \"{}\" is not UTF-8", name));
    }
  };
  if (!header.metadata.empty()) add("__metadata__", header.metadata);
  uint64_t end = 0;
  for (StoredTensor& tensor : header.tensors) {
    const TensorInfo& info = tensor.info;
    if (info.name == "__metadata__") throw UsageError("safetensors keeps the name __metadata__ for itself");
    if (!names.insert(info.name).second) throw UsageError(fmt::format("tensor {} is given twice", info.name));
    tensor.offset = end;
    end += info.num_bytes();
    add(info.name,
        {{"dtype", safetensors_name(info.type)}, {"shape", info.shape}, {"data_offsets", {tensor.offset, end}}});
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
