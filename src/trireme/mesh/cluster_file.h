// What communication costs on this cluster, as measured: the numbers behind predictions and choices, kept as JSON.
//
//   {"version": 1, "host": "node-a", "cores": 2, "date": "2026-03-01", "transports": [
//     {"transport": "shared memory", "ranks": 2, "latency_us": 0.8, "us_per_byte": 1e-4,
//      "reduce_us_per_byte": 2e-4, "barrier_us": 1.1, "copy_us_per_byte": 1e-4}, …]}
//
// An entry with "ranks": 0 holds for any number of ranks. Other keys, such as what devices can do (simulate/cluster.h),
// are kept as they are.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// A message of n bytes takes latency_us + n * us_per_byte: the alpha and beta of the lectures.
struct LinkCost {
  double latency_us = 0;
  double us_per_byte = 0;
  bool operator==(const LinkCost&) const = default;
};

struct TransportCost {
  std::string transport;          ///< "threads", "shared memory", "tcp", "mpi", "nvlink", …
  int ranks = 0;                  ///< how many took part in the measurement; 0: holds for any number
  LinkCost link;                  ///< between two ranks
  double reduce_us_per_byte = 0;  ///< to add one operand to another: gamma
  double barrier_us = 0;
  double copy_us_per_byte = 0;  ///< from memory to memory of one rank
  bool operator==(const TransportCost&) const = default;
};

struct ClusterFile {
  static constexpr int kVersion = 1;

  std::string host;
  int cores = 0;
  std::string date;  ///< "2026-03-01", of the last measurement
  std::vector<TransportCost> transports;
  std::map<std::string, std::string> others = {};  ///< keys of other readers, with their values as JSON

  /// Plausible values for a laptop, where nothing was measured: an entry for any number of ranks of each transport.
  static ClusterFile defaults();
  /// $TRIREME_CLUSTER, or trireme/cluster.json under $XDG_CONFIG_HOME or ~/.config; empty where there is no home.
  static std::filesystem::path default_path();
  /// Throws SystemError if it cannot be read, UsageError naming file and key if it is not right.
  static ClusterFile load(const std::filesystem::path& path);
  /// defaults() with the file's entries merged in; defaults() if there is no file.
  static ClusterFile load_or_defaults(const std::filesystem::path& path = default_path());
  static ClusterFile from_json(std::string_view text, const std::string& name);

  /// Through a temporary file, synced and renamed: readers see the old or the new. Makes the folder. SystemError.
  void save(const std::filesystem::path& path) const;
  std::string to_json() const;

  /// Takes over the host, date, entries and other keys of `newer`; entries for another transport or number of ranks
  /// stay, and so do other keys that it does not have.
  void merge(const ClusterFile& newer);

  /// The entry for this number of ranks, else that measured with the nearest number, else that for any number.
  /// Throws UsageError for a transport without entries.
  const TransportCost& cost(std::string_view transport, int ranks) const;

  bool operator==(const ClusterFile&) const = default;
};

}  // namespace trireme
