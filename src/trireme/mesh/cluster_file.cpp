#include "trireme/mesh/cluster_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
constexpr int kMaxRanks = 1 << 24;
const std::set<std::string> kOwnKeys = {"version", "host", "cores", "date", "transports"};

/// A number of the file that is not negative.
double read_cost(JsonReader& reader, const char* key) {
  double cost = 0;
  reader(key, cost);
  if (cost < 0) reader.fail(fmt::format("\"{}\" = {} must not be negative", key, cost));
  return cost;
}

TransportCost read_transport(JsonReader reader) {
  TransportCost cost;
  reader("transport", cost.transport);
  if (cost.transport.empty()) reader.fail("a transport has an empty name");
  reader("ranks", cost.ranks);
  if (cost.ranks > kMaxRanks) reader.fail(fmt::format("\"ranks\" = {} is more than {}", cost.ranks, kMaxRanks));
  cost.link.latency_us = read_cost(reader, "latency_us");
  cost.link.us_per_byte = read_cost(reader, "us_per_byte");
  cost.reduce_us_per_byte = read_cost(reader, "reduce_us_per_byte");
  cost.barrier_us = read_cost(reader, "barrier_us");
  cost.copy_us_per_byte = read_cost(reader, "copy_us_per_byte");
  return cost;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

ClusterFile ClusterFile::defaults() {
  ClusterFile file;
  // transport, any number, {latency, 1 / bandwidth}, reduction, barrier, copy: 10 GB/s is 1e-4 us a byte.
  file.transports = {{"threads", 0, {0.3, 1.0e-4}, 1.5e-4, 0.5, 1.0e-4},
                     {"shared memory", 0, {0.6, 1.0e-4}, 1.5e-4, 1.0, 1.0e-4},
                     {"tcp", 0, {20.0, 4.0e-4}, 1.5e-4, 30.0, 1.0e-4},
                     {"mpi", 0, {1.0, 2.0e-4}, 1.5e-4, 1.5, 1.0e-4}};
  return file;
}

std::filesystem::path ClusterFile::default_path() {
  if (const std::string path = variable("TRIREME_CLUSTER"); !path.empty()) return path;
  std::filesystem::path config = variable("XDG_CONFIG_HOME");
  if (!config.is_absolute()) {  // the specification of XDG says to ignore a relative one
    const std::string home = variable("HOME");
    if (home.empty()) return {};
    config = std::filesystem::path(home) / ".config";
  }
  return config / "trireme" / "cluster.json";
}

ClusterFile ClusterFile::from_json(std::string_view text, const std::string& name) {
  const std::string said = "cluster file " + name;
  const Json json = parse_json(text, said + " is not JSON", "mend it there");
  JsonReader reader(json, said);
  // The version first: the rest may look different in another one.
  int version = 0;
  reader("version", version);
  if (version != kVersion) {
    throw UsageError(fmt::format("cluster file {}: version {} is not known, only {}", name, version, kVersion),
                     "measure it anew: trireme bench comm --write-cluster " + name);
  }
  ClusterFile file;
  reader("host", file.host);
  reader("cores", file.cores);
  reader("date", file.date);
  const Json& transports = reader.part("transports");
  if (!transports.is_array()) reader.fail("\"transports\" must be a list");
  for (size_t i = 0; i < transports.size(); ++i) {
    const TransportCost cost = read_transport({transports[i], said, fmt::format("transports[{}]", i)});
    for (const TransportCost& other : file.transports) {
      if (other.transport == cost.transport && other.ranks == cost.ranks) {
        reader.fail(fmt::format("\"transports\" has {} with {} ranks twice", cost.transport, cost.ranks));
      }
    }
    file.transports.push_back(cost);
  }
  for (const auto& [key, value] : json.items()) {
    if (!kOwnKeys.contains(key)) file.others[key] = value.dump();
  }
  return file;
}

ClusterFile ClusterFile::load(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw SystemError("open the cluster file " + path.string(), ENOENT,
                      "measure it: trireme bench comm --write-cluster " + path.string());
  }
  // Wherever a symbolic link leads.
  return from_json(read_whole_file(std::filesystem::canonical(path), kMaxBytes), path.string());
}

ClusterFile ClusterFile::load_or_defaults(const std::filesystem::path& path) {
  ClusterFile file = defaults();
  std::error_code ignored;
  if (!path.empty() && std::filesystem::exists(path, ignored)) file.merge(load(path));
  return file;
}

std::string ClusterFile::to_json() const {
  Json list = Json::array();
  for (const TransportCost& cost : transports) {
    list.push_back({{"transport", cost.transport},
                    {"ranks", cost.ranks},
                    {"latency_us", cost.link.latency_us},
                    {"us_per_byte", cost.link.us_per_byte},
                    {"reduce_us_per_byte", cost.reduce_us_per_byte},
                    {"barrier_us", cost.barrier_us},
                    {"copy_us_per_byte", cost.copy_us_per_byte}});
  }
  Json json{{"version", kVersion}, {"host", host}, {"cores", cores}, {"date", date}, {"transports", list}};
  for (const auto& [key, value] : others) json[key] = Json::parse(value);
  // A host name may hold any bytes.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void ClusterFile::save(const std::filesystem::path& path) const {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  make_folders(folder);
  const std::filesystem::path temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  remove_tree(temporary);  // of a killed process that had this pid
  try {
    File file = File::create(temporary);
    file.write(to_json());
    file.sync();
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

void ClusterFile::merge(const ClusterFile& newer) {
  if (!newer.host.empty()) host = newer.host;
  if (newer.cores > 0) cores = newer.cores;
  if (!newer.date.empty()) date = newer.date;
  for (const auto& [key, value] : newer.others) others[key] = value;
  for (const TransportCost& cost : newer.transports) {
    const auto same = std::find_if(transports.begin(), transports.end(), [&](const TransportCost& old) {
      return old.transport == cost.transport && old.ranks == cost.ranks;
    });
    if (same != transports.end()) {
      *same = cost;
    } else {
      transports.push_back(cost);
    }
  }
}

const TransportCost& ClusterFile::cost(std::string_view transport, int ranks) const {
  const TransportCost* best = nullptr;
  double best_distance = std::numeric_limits<double>::infinity();
  for (const TransportCost& entry : transports) {
    if (entry.transport != transport) continue;
    // By ratio: 8 is nearer to 16 than to 2. An entry for any number comes after all that were measured.
    const double distance = entry.ranks > 0 && ranks > 0 ? std::fabs(std::log(double(entry.ranks) / ranks)) : 1e9;
    if (distance < best_distance) {
      best = &entry;
      best_distance = distance;
    }
  }
  if (best != nullptr) return *best;
  std::vector<std::string> names;
  for (const TransportCost& entry : transports) {
    if (std::find(names.begin(), names.end(), entry.transport) == names.end()) names.push_back(entry.transport);
  }
  const auto meant = nearest(transport, names);
  throw UsageError(fmt::format("no costs are known for the transport \"{}\"", transport),
                   meant ? fmt::format("did you mean \"{}\"?", *meant) : "known: " + join(names, ", "));
}

}  // namespace trireme
