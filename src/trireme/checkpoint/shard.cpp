// write_shard(): the files of one shard, and its record.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/base/file.h"
#include "trireme/base/units.h"
#include "trireme/checkpoint/folder.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/piece_writer.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/save.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// A file that is about to be written.
struct Plan {
  std::string name;
  std::string start;
  SafetensorsHeader header;
  std::vector<const ShardTensor*> tensors;  // in the order of the header

  uint64_t num_bytes() const {
    uint64_t sum = start.size();
    for (const ShardTensor* tensor : tensors) sum += tensor->view.bytes.size();
    return sum;
  }
};

void check(const ShardTensor& tensor) {
  const TensorInfo& info = tensor.view.info;
  if (tensor.view.bytes.size() != info.num_bytes()) {
    throw UsageError(fmt::format("tensor {} has {} bytes, but its shape and type need {}", info.name,
                                 tensor.view.bytes.size(), info.num_bytes()));
  }
  const int64_t full = tensor.full_rows.value_or(rows_of(info));
  if (tensor.first_row < 0 || tensor.first_row > full || rows_of(info) > full - tensor.first_row) {
    throw UsageError(fmt::format("tensor {}: rows {} to {} of {}", info.name, tensor.first_row,
                                 tensor.first_row + rows_of(info), full));
  }
  if (info.shape.empty() && full != 1)
    throw UsageError(fmt::format("tensor {} is a scalar; it has one row", info.name));
  const bool plain = !tensor.group.empty() && tensor.group.size() <= 32 &&
                     std::all_of(tensor.group.begin(), tensor.group.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (!plain || tensor.group == "record") {
    throw UsageError(fmt::format("\"{}\" cannot be the group of tensor {}", tensor.group, info.name),
                     "lower-case letters, such as \"weights\" or \"optimizer\"");
  }
}

std::vector<Plan> make_plans(const SavePlace& place, int shard, int num_shards, std::span<const ShardTensor> tensors) {
  std::map<std::string, std::vector<const ShardTensor*>> groups;
  for (const ShardTensor& tensor : tensors) {
    check(tensor);
    groups[tensor.group].push_back(&tensor);
  }
  std::vector<Plan> plans;
  for (const auto& [group, members] : groups) {
    Plan plan;
    plan.name = fmt::format("{}-{:05}-of-{:05}.safetensors", group, shard, num_shards);
    std::vector<TensorInfo> infos;
    for (const ShardTensor* tensor : members) infos.push_back(tensor->view.info);
    for (const size_t index : safetensors_order(infos)) {
      plan.tensors.push_back(members[index]);
      plan.header.tensors.push_back({infos[index], 0});
    }
    plan.header.metadata = {{"format", "pt"},
                            {"trireme.file", plan.name},
                            {"trireme.step", std::to_string(place.step)},
                            {"trireme.token", place.token}};
    plan.start = make_safetensors_header(plan.header);
    plans.push_back(std::move(plan));
  }
  return plans;
}

ManifestFile write_file(const fs::path& path, const Plan& plan) {
  PieceWriter writer(path);
  writer.write(std::as_bytes(std::span(plan.start.data(), plan.start.size())));
  for (const ShardTensor* tensor : plan.tensors) writer.write(tensor->view.bytes);
  return writer.finish();
}

void add_parts(Manifest& record, const Plan& plan) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const ShardTensor& tensor = *plan.tensors[i];
    ManifestPart part{tensor.view.info, static_cast<uint32_t>(record.files.size() - 1), plan.header.tensors[i].offset,
                      tensor.first_row, rows_of(tensor.view.info)};
    if (!part.tensor.shape.empty()) part.tensor.shape.front() = tensor.full_rows.value_or(part.num_rows);
    record.parts.push_back(std::move(part));
  }
}

}  // namespace

void throw_disk_full(const fs::path& folder, int error_number, uint64_t needed) {
  std::string free = "too little";
  try {
    free = format_bytes(free_bytes(folder));
  } catch (const Error&) {
    // The number would be nice, the rest is needed.
  }
  throw SystemError("save to " + folder.string(), error_number,
                    fmt::format("needed: {} ({} bytes), free: {}; earlier checkpoints are untouched, and the next save "
                                "works once there is room",
                                format_bytes(needed), needed, free));
}

void write_shard(const SavePlace& place, int shard, int num_shards, std::span<const ShardTensor> tensors) {
  if (shard < 0 || shard >= num_shards) throw UsageError(fmt::format("shard {} of {}", shard, num_shards));
  const std::vector<Plan> plans = make_plans(place, shard, num_shards, tensors);
  uint64_t needed = 0;
  for (const Plan& plan : plans) needed += plan.num_bytes();

  const fs::path folder = place.temporary();
  std::vector<fs::path> made;
  try {
    if (free_bytes(folder) < needed) throw_disk_full(folder, ENOSPC, needed);
    Manifest record{place.step, place.token, num_shards, "{}", {}, {}};
    for (const Plan& plan : plans) {
      made.push_back(folder / plan.name);
      record.files.push_back(write_file(made.back(), plan));
      read_back(made.back(), record.files.back(), step_name(place.step));
      add_parts(record, plan);
    }
    // The record appears whole or not at all: it tells worker 0 that this shard is done.
    const fs::path final = folder / record_name(shard, num_shards);
    const fs::path temporary = final.string() + ".part";
    made.push_back(temporary);
    {
      File file = File::create(temporary);
      file.write(record.to_json());
      file.sync();
    }
    fault_point("checkpoint.before_record");
    rename_path(temporary, final);
    made.push_back(final);
    sync_folder(folder);
  } catch (const SystemError& error) {
    for (const fs::path& path : made) {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
    const bool full = error.error_number() == ENOSPC || error.error_number() == EDQUOT;
    if (full && std::string_view(error.what()).find("needed: ") == std::string_view::npos) {
      throw_disk_full(folder, error.error_number(), needed);
    }
    throw;
  } catch (...) {
    for (const fs::path& path : made) {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
    throw;
  }
}

}  // namespace trireme
