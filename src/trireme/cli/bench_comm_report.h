// What `trireme bench comm` shows: tables for people, one object for machines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/cli/bench_comm_measure.h"

namespace trireme::cli {

/// One table for each operation and number of ranks, then the notes.
std::string table_text(const BenchCommRun& run, const ClusterFile& cluster, bool colour);

nlohmann::ordered_json results_json(const BenchCommRun& run);
/// Host, processor, memory, kernel, versions: what a number needs to be compared with another.
nlohmann::ordered_json machine_json(const BenchCommRun& run);
/// The same on one line.
std::string machine_text(const BenchCommRun& run);

/// Three digits: "1.23", "45.6", "5,500".
std::string format_us(double us);

}  // namespace trireme::cli
