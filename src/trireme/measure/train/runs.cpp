#include "trireme/measure/train/runs.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/config/arguments.h"
#include "trireme/config/check.h"
#include "trireme/measure/machine.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/observe/event_log.h"
#include "trireme/observe/run_folder.h"
#include "trireme/plan/config_job.h"

namespace trireme::measure {
namespace {

/// The file or the preset that "this" stands for.
std::string place_of_this_machine() {
  return measured_cluster(true) || measured_cluster(false) ? ClusterFile::default_path().string() : "laptop";
}

/// A cluster file goes on as it is; a preset becomes a file that starts from it.
ClusterFile file_of(std::string cluster) {
  if (cluster == kThisMachine) cluster = place_of_this_machine();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(cluster, ignored)) {
    const std::string text = read_whole_file(cluster, uint64_t{16} << 20);
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.contains("version")) return ClusterFile::from_json(text, cluster);
    ClusterFile file;  // written by hand, without what bench comm measures
    for (const auto& [key, value] : json.items()) file.others[key] = value.dump();
    return file;
  }
  ClusterFile file;
  file.others["preset"] = nlohmann::json(cluster).dump();
  return file;
}

std::string preset_in(const ClusterFile& file) {
  const auto found = file.others.find("preset");
  return found == file.others.end() ? "" : nlohmann::json::parse(found->second).get<std::string>();
}

}  // namespace

MeasuredStep measured_run(const std::string& folder, const Cluster& cluster) {
  const RunPaths paths{folder};
  std::error_code ignored;
  if (!std::filesystem::exists(paths.events(), ignored)) {
    throw UsageError(fmt::format("{} is no run folder: it has no events.jsonl", folder),
                     "trireme train says which folder it has written");
  }
  std::optional<double> step_ms, memory, workers;
  for (const Event& event : read_events(paths.events()).events) {
    if (event.kind != EventKind::kEnd && event.kind != EventKind::kStop) continue;
    step_ms = event.number("step_ms");
    memory = event.number("memory_bytes");
    workers = event.number("workers");
  }
  if (!step_ms || *step_ms <= 0 || !workers) {
    throw UsageError(fmt::format("run {} has not come to an end: its step time is not known", folder),
                     fmt::format("trireme train --resume {}", folder));
  }
  ConfigArguments arguments;
  arguments.file = paths.config().string();
  const Config config = with_trainer_choices(resolve(arguments.sources()));  // the trainer has run it
  MeasuredStep run{std::filesystem::path(folder).lexically_normal().string(), job_of(config, trireme_on(cluster)),
                   *step_ms / 1000, memory.value_or(0)};
  run.job.layout.dp = check_sizes(config, static_cast<int64_t>(*workers)).dp;
  return run;
}

RunComparison compare_runs(const std::vector<std::string>& folders, const std::string& cluster,
                           const std::optional<std::filesystem::path>& write_cluster) {
  RunComparison comparison;
  const Cluster now = find_cluster(cluster);
  for (const std::string& folder : folders) {
    comparison.runs.push_back(measured_run(folder, now));
    check_types(comparison.runs.back().job.layout, now);
  }
  comparison.before = compare_with(now, comparison.runs);
  if (!write_cluster) return comparison;
  comparison.after = fit_device(now, comparison.runs);
  ClusterFile file = file_of(cluster), measured;
  measured.date = machine_at_hand().date;
  measured.others = device_keys(comparison.after->cluster, preset_in(file));
  file.merge(measured);
  comparison.path = *write_cluster;
  file.save(comparison.path);
  return comparison;
}

}  // namespace trireme::measure
