// `trireme checkpoint`: lists, shows, verifies, compares and exports checkpoints, without libtorch.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/checkpoint/diff.h"
#include "trireme/checkpoint/folder.h"
#include "trireme/checkpoint/hugging_face.h"
#include "trireme/checkpoint/hugging_face_folder.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/cli/commands.h"
#include "trireme/config/resolve.h"
#include "trireme/config/value.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

/// The folder that holds checkpoints: the one given, or `checkpoints` in it where that is a run.
fs::path folder_of_checkpoints(const fs::path& given) {
  std::error_code ignored;
  if (!fs::is_directory(given, ignored)) {
    throw UsageError(fmt::format("there is no folder {}", given.string()), "give a run, such as runs/default-1");
  }
  return fs::is_directory(given / "checkpoints", ignored) ? given / "checkpoints" : given;
}

/// A folder with a manifest, or one whose name says that it should have one.
bool is_checkpoint(const fs::path& given) {
  std::error_code ignored;
  const fs::path clean = given.has_filename() ? given : given.parent_path();
  return fs::is_directory(clean, ignored) &&
         (fs::exists(clean / "manifest.json", ignored) || clean.filename().string().starts_with("step-"));
}

/// The checkpoint that was meant: this one, or the newest of a run.
fs::path one_checkpoint(const fs::path& given) {
  if (is_checkpoint(given)) return given;
  const fs::path root = folder_of_checkpoints(given);
  const std::vector<CheckpointFolder> all = list_checkpoints(root);
  if (all.empty()) throw UsageError(fmt::format("there is no checkpoint in {}", root.string()));
  return all.front().path;
}

uint64_t num_bytes_of(const CheckpointReader& reader) {
  uint64_t sum = 0;
  for (const ManifestFile& file : reader.manifest().files) sum += file.num_bytes;
  return sum;
}

std::string time_of(const fs::path& folder) {
  std::error_code error;
  const auto time = fs::last_write_time(folder / "manifest.json", error);
  if (error) return "";
  const auto clock = std::chrono::file_clock::to_sys(time);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(
                         std::chrono::time_point_cast<std::chrono::system_clock::duration>(clock))));
}

Json json_of(const TensorInfo& tensor) {
  return {{"name", tensor.name}, {"type", safetensors_name(tensor.type)}, {"shape", tensor.shape}};
}

Json json_of(const Damage& damage) {
  return {{"file", damage.file},
          {"byte", damage.byte},
          {"tensor", damage.tensor},
          {"more_tensors", damage.more_tensors},
          {"problem", damage.problem}};
}

int list(const fs::path& given, bool json) {
  const fs::path root = folder_of_checkpoints(given);
  Table table({"step", "size", "tensors", "shards", "saved", Column("", Align::kLeft)});
  Json rows = Json::array();
  bool damaged = false;
  for (const CheckpointFolder& folder : list_checkpoints(root)) {
    try {
      const CheckpointReader reader = CheckpointReader::open(folder.path);
      const uint64_t num_bytes = num_bytes_of(reader);
      table.add_row({format_count(static_cast<int64_t>(folder.step)), format_bytes(num_bytes),
                     std::to_string(reader.tensors().size()), std::to_string(reader.num_shards()), time_of(folder.path),
                     folder.path.filename().string()});
      rows.push_back({{"step", folder.step},
                      {"path", folder.path.string()},
                      {"bytes", num_bytes},
                      {"tensors", reader.tensors().size()},
                      {"shards", reader.num_shards()},
                      {"damaged", false}});
    } catch (const DamagedError& error) {
      damaged = true;
      table.add_row({format_count(static_cast<int64_t>(folder.step)), "", "", "", time_of(folder.path),
                     "damaged: " + error.damage().text()});
      rows.push_back({{"step", folder.step},
                      {"path", folder.path.string()},
                      {"damaged", true},
                      {"damage", json_of(error.damage())}});
    }
  }
  if (json) {
    print_json({{"folder", root.string()}, {"checkpoints", rows}});
  } else if (table.empty()) {
    fmt::print("no checkpoint in {}\n", root.string());
  } else {
    fmt::print("{}\nNames, sizes and manifests were looked at. Every byte: trireme checkpoint verify {}\n",
               table.to_text(), given.string());
  }
  return damaged ? 1 : 0;
}

int inspect(const fs::path& given, bool json) {
  const CheckpointReader reader = CheckpointReader::open(one_checkpoint(given));
  std::vector<TensorInfo> sorted = reader.tensors();
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return natural_less(a.name, b.name); });
  if (json) {
    Json tensors = Json::array(), files = Json::array();
    for (const TensorInfo& tensor : sorted) {
      Json entry = json_of(tensor);
      entry["bytes"] = tensor.num_bytes();
      entry["group"] = reader.group_of(tensor.name);
      tensors.push_back(std::move(entry));
    }
    for (const ManifestFile& file : reader.manifest().files) {
      files.push_back({{"name", file.name}, {"bytes", file.num_bytes}});
    }
    print_json({{"path", reader.path().string()},
                {"step", reader.step()},
                {"shards", reader.num_shards()},
                {"meta", Json::parse(reader.meta())},
                {"files", files},
                {"tensors", tensors}});
    return 0;
  }
  uint64_t num_elements = 0;
  for (const TensorInfo& tensor : reader.tensors()) {
    num_elements += reader.group_of(tensor.name) == "weights" ? tensor.count() : 0;
  }
  fmt::print("{} · step {} · {} · {} · {} · {} numbers in weights\n\n", reader.path().string(),
             format_count(static_cast<int64_t>(reader.step())), format_bytes(num_bytes_of(reader)),
             counted(reader.num_shards(), "shard"), counted(static_cast<int64_t>(reader.tensors().size()), "tensor"),
             format_short_count(static_cast<double>(num_elements)));
  Table table({"tensor", "type", "shape", Column("size", Align::kRight), "group"});
  for (const TensorInfo& tensor : sorted) {
    table.add_row({printable(tensor.name), std::string(safetensors_name(tensor.type)), sizes_text(tensor.shape),
                   format_bytes(tensor.num_bytes()), reader.group_of(tensor.name)});
  }
  Json meta = Json::parse(reader.meta());
  std::string config;  // TOML of many lines, which reads badly inside JSON
  if (const auto kept = meta.find("config"); kept != meta.end() && kept->is_string()) {
    config = "\nconfig\n\n" + kept->get<std::string>();
    meta.erase(kept);
  }
  fmt::print("{}\nmeta {}\n{}", table.to_text(), meta.dump(2, ' ', false, Json::error_handler_t::replace), config);
  return 0;
}

int verify(const fs::path& given, bool json) {
  std::vector<fs::path> paths;
  if (is_checkpoint(given)) {
    paths.push_back(given);
  } else {
    for (const CheckpointFolder& folder : list_checkpoints(folder_of_checkpoints(given))) paths.push_back(folder.path);
    if (paths.empty()) throw UsageError(fmt::format("there is no checkpoint in {}", given.string()));
  }
  Json results = Json::array();
  int num_damaged = 0;
  for (const fs::path& path : paths) {
    const std::vector<Damage> damages = verify_checkpoint(path);
    num_damaged += !damages.empty();
    Json list = Json::array();
    for (const Damage& damage : damages) list.push_back(json_of(damage));
    results.push_back({{"path", path.string()}, {"whole", damages.empty()}, {"damages", list}});
    if (json) continue;
    fmt::print("{}: {}\n", path.string(), damages.empty() ? "whole, every byte of it" : "damaged");
    for (const Damage& damage : damages) fmt::print("  {}\n", damage.text());
  }
  if (json) print_json({{"whole", num_damaged == 0}, {"checkpoints", results}});
  return num_damaged == 0 ? 0 : 1;
}

int diff(const fs::path& given_a, const fs::path& given_b, bool json) {
  const CheckpointReader a = CheckpointReader::open(one_checkpoint(given_a));
  const CheckpointReader b = CheckpointReader::open(one_checkpoint(given_b));
  const CheckpointDifference difference = diff_checkpoints(a, b);
  if (json) {
    Json list = Json::array();
    for (const TensorDifference& entry : difference.different) {
      list.push_back({{"a", json_of(entry.a)},
                      {"b", json_of(entry.b)},
                      {"comparable", entry.comparable()},
                      {"different_elements", entry.num_different},
                      {"largest", entry.largest},
                      {"largest_ulp", entry.largest_ulp},
                      {"nan_in_one", entry.num_one_nan}});
    }
    print_json({{"equal", difference.equal()},
                {"equal_tensors", difference.num_equal},
                {"only_a", difference.only_a},
                {"only_b", difference.only_b},
                {"different", list}});
    return difference.equal() ? 0 : 1;
  }
  if (difference.equal()) {
    fmt::print("equal: {}, bit for bit\n", counted(static_cast<int64_t>(difference.num_equal), "tensor"));
    return 0;
  }
  for (const std::string& name : difference.only_a) fmt::print("only in {}: {}\n", given_a.string(), printable(name));
  for (const std::string& name : difference.only_b) fmt::print("only in {}: {}\n", given_b.string(), printable(name));
  Table table({"tensor", Column("differ", Align::kRight), Column("largest difference", Align::kRight),
               Column("ulp", Align::kRight), Column("", Align::kLeft)});
  for (const TensorDifference& entry : difference.different) {
    if (!entry.comparable()) {
      table.add_row({printable(entry.a.name), "", "", "",
                     fmt::format("{} {} and {} {}", safetensors_name(entry.a.type), sizes_text(entry.a.shape),
                                 safetensors_name(entry.b.type), sizes_text(entry.b.shape))});
      continue;
    }
    table.add_row({printable(entry.a.name),
                   fmt::format("{} of {}", format_count(static_cast<int64_t>(entry.num_different)),
                               format_count(static_cast<int64_t>(entry.a.count()))),
                   fmt::format("{:.3g}", entry.largest), std::to_string(entry.largest_ulp),
                   entry.num_one_nan == 0 ? "" : fmt::format("{} NaN in one only", entry.num_one_nan)});
  }
  fmt::print("{}{}{} differ, {} equal\n", table.empty() ? "" : table.to_text(), table.empty() ? "" : "\n",
             counted(static_cast<int64_t>(difference.different.size()), "tensor"), difference.num_equal);
  return 1;
}

/// The weights with the names of this project, whole.
std::vector<OwnedTensor> read_weights(const CheckpointReader& reader) {
  std::vector<OwnedTensor> weights;
  for (const TensorInfo& info : reader.tensors()) {
    if (reader.group_of(info.name) != "weights") continue;
    weights.push_back({info, std::vector<std::byte>(info.num_bytes())});
    reader.read(info.name, weights.back().bytes);
  }
  return weights;
}

std::vector<TensorView> views_of(const std::vector<OwnedTensor>& tensors) {
  std::vector<TensorView> views;
  for (const OwnedTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

/// What a run keeps as TOML in "config" of the meta; nothing where there is none.
std::optional<Config> config_of(const CheckpointReader& reader) {
  const Json meta = Json::parse(reader.meta());
  const auto config = meta.find("config");
  if (config == meta.end() || !config->is_string()) return std::nullopt;
  return resolve_text(config->get<std::string>(), "the config in " + reader.path().string());
}

int export_weights(const fs::path& given, const fs::path& to, bool own_names, bool json) {
  const CheckpointReader reader = CheckpointReader::open(one_checkpoint(given));
  std::vector<OwnedTensor> weights = read_weights(reader);
  const std::optional<Config> config = own_names ? std::nullopt : config_of(reader);
  const bool translated = config && config->model.is_language();
  if (translated) weights = to_hugging_face(config->model, views_of(weights));
  if (to.has_parent_path()) fs::create_directories(to.parent_path());
  write_safetensors(to, views_of(weights), {{"format", "pt"}});
  HuggingFaceFolder folder;
  if (translated) folder = write_hugging_face_folder(to.parent_path(), config->model, config->data.tokenizer);
  const uint64_t num_bytes = fs::file_size(to);
  if (json) {
    Json beside = Json::array();
    for (const FolderFile& file : folder.files)
      beside.push_back({{"file", file.path.string()}, {"old", file.old.string()}});
    print_json({{"file", to.string()},
                {"bytes", num_bytes},
                {"tensors", weights.size()},
                {"names", translated ? "hugging face" : "trireme"},
                {"beside", beside}});
  } else {
    fmt::print("{}: {}, {}, names {}\n", to.string(), counted(static_cast<int64_t>(weights.size()), "tensor"),
               format_bytes(num_bytes), translated ? "of Hugging Face" : "as in the checkpoint");
    for (const FolderFile& file : folder.files) {
      fmt::print("{}: for transformers, which loads the folder{}\n", file.path.string(),
                 file.old.empty() ? "" : fmt::format("; what was there is now {}", file.old.string()));
    }
  }
  if (!folder.warning.empty()) fmt::print(stderr, "warning: {}\n", folder.warning);
  return 0;
}

struct Arguments {
  std::string a, b, to;
  bool json = false, own_names = false;
};

}  // namespace

void add_checkpoint(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("checkpoint", "lists, shows, verifies, compares and exports checkpoints");
  command->require_subcommand(1);
  command->footer(
      "Where a checkpoint is asked for, a run stands for its newest one.\n"
      "\n"
      "Examples\n"
      "  trireme checkpoint list runs/default-1\n"
      "  trireme checkpoint verify runs/default-1/checkpoints/step-000600\n"
      "\n"
      "Exit codes: 0 success, 1 damaged or different, 2 a wrong command line. How it works: docs/checkpoints.md");
  const auto arguments = std::make_shared<Arguments>();
  const auto add = [&](const char* name, const char* what, const char* json, const char* example) {
    CLI::App* sub = command->add_subcommand(name, what);
    sub->add_flag("--json", arguments->json, json);
    sub->footer(fmt::format("Example\n  {}", example));
    return sub;
  };
  const char* const kWhich = "the folder of a checkpoint, or a run: its newest one";

  CLI::App* sub = add("list", "the checkpoints of a run, newest first", "one object on stdout: folder, checkpoints",
                      "trireme checkpoint list runs/default-1");
  sub->add_option("FOLDER", arguments->a, "a run, or its folder checkpoints")->required();
  sub->callback([arguments, &exit_code] { exit_code = list(arguments->a, arguments->json); });

  sub = add("inspect", "tensors, sizes and meta of a checkpoint",
            "one object on stdout: path, step, shards, meta, files, tensors",
            "trireme checkpoint inspect runs/default-1/checkpoints/step-000600");
  sub->add_option("CHECKPOINT", arguments->a, kWhich)->required();
  sub->callback([arguments, &exit_code] { exit_code = inspect(arguments->a, arguments->json); });

  sub = add("verify", "reads every byte and compares it with its checksum", "one object on stdout: whole, checkpoints",
            "trireme checkpoint verify runs/default-1");
  sub->add_option("CHECKPOINT", arguments->a, "the folder of a checkpoint, or a run: all of its checkpoints")
      ->required();
  sub->callback([arguments, &exit_code] { exit_code = verify(arguments->a, arguments->json); });

  sub = add("diff", "what differs between two checkpoints, tensor by tensor",
            "one object on stdout: equal, only_a, only_b, different",
            "trireme checkpoint diff runs/default-1 runs/default-2");
  sub->add_option("A", arguments->a, kWhich)->required();
  sub->add_option("B", arguments->b, kWhich)->required();
  sub->callback([arguments, &exit_code] { exit_code = diff(arguments->a, arguments->b, arguments->json); });

  sub = add("export", "the weights as one safetensors file; GPT-2 and Llama with the names of Hugging Face",
            "one object on stdout: file, bytes, tensors, names, beside",
            "trireme checkpoint export runs/default-1 --to model.safetensors");
  sub->add_option("CHECKPOINT", arguments->a, kWhich)->required();
  sub->add_option("--to", arguments->to, "the file to write")->required()->type_name("FILE");
  sub->add_flag("--own-names", arguments->own_names, "names and shapes as in the checkpoint for every model");
  sub->callback([arguments, &exit_code] {
    exit_code = export_weights(arguments->a, arguments->to, arguments->own_names, arguments->json);
  });
}

}  // namespace trireme::cli
