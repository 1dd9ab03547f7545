// What `trireme bench comm` shows: tables for people, objects for machines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trireme/measure/comm/explain.h"
#include "trireme/measure/comm/fit.h"
#include "trireme/measure/comm/gpu.h"
#include "trireme/measure/comm/table.h"

namespace trireme::cli {

/// One table for each operation and number of ranks, then the notes.
std::string table_text(const measure::CommRun& run, const ClusterFile& cluster, bool colour);
nlohmann::ordered_json results_json(const measure::CommRun& run);
/// Host, processor, memory, kernel, versions: what a number needs to be compared with another.
nlohmann::ordered_json machine_json(const measure::CommRun& run);

/// --explain: one table for each size, and where the lowest prediction changes.
std::string explanation_text(const std::vector<measure::ExplainedRanks>& explained, bool colour);
nlohmann::ordered_json explanation_json(const std::vector<measure::ExplainedRanks>& explained);

/// --write-cluster: constants, and predictions with them next to measurements.
std::string fit_text(const measure::Fit& fit, bool colour);
nlohmann::ordered_json fit_json(const measure::Fit& fit);

/// --device cuda.
std::string gpu_text(const measure::CommOptions& options, const measure::GpuCommRun& run, bool colour);
nlohmann::ordered_json gpu_json(const measure::GpuCommRun& run);

}  // namespace trireme::cli
