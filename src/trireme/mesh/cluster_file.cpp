#include "trireme/mesh/cluster_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/json_fault.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr int kMaxRanks = 1 << 24;
const std::set<std::string> kOwnKeys = {"version", "host", "cores", "date", "transports"};

/// A file descriptor that closes itself.
class File {
 public:
  File(const std::string& path, int flags, mode_t mode = 0) : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

std::string read_all(const std::string& path) {
  const File file(path, O_RDONLY);
  if (file.fd() < 0) {
    const int error = errno;
    const std::string cure = error == ENOENT ? "measure it: trireme bench comm --write-cluster " + path : "";
    throw SystemError("open the cluster file " + path, error, cure);
  }
  std::string text;
  char piece[1 << 14];
  for (;;) {
    const ssize_t n = ::read(file.fd(), piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("read the cluster file " + path, errno);
    if (n == 0) return text;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > kMaxBytes) throw UsageError(fmt::format("cluster file {} is larger than 16 MiB", path));
  }
}

/// Reads the keys of one object; `where` leads to it in messages.
class Reader {
 public:
  Reader(const Json& object, std::string file, std::string where)
      : object_(object), file_(std::move(file)), where_(std::move(where)) {
    if (!object_.is_object()) throw UsageError(fmt::format("cluster file {}: {} is not an object", file_, at("")));
  }

  const Json& get(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail(key, "is missing");
    return *found;
  }
  std::string text(const char* key) const {
    const Json& value = get(key);
    if (!value.is_string()) fail(key, "must be a text");
    return value.get<std::string>();
  }
  int integer(const char* key, int most) const {
    const Json& value = get(key);
    if (!value.is_number_integer()) fail(key, "must be a whole number");
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most);
    if (!fits) fail(key, fmt::format("= {} must be from 0 to {}", value.dump(), most));
    return value.get<int>();
  }
  double cost(const char* key) const {
    const Json& value = get(key);
    if (!value.is_number()) fail(key, "must be a number");
    const double number = value.get<double>();
    if (!std::isfinite(number) || number < 0) fail(key, fmt::format("= {} must not be negative", value.dump()));
    return number;
  }
  [[noreturn]] void fail(const char* key, const std::string& problem) const {
    throw UsageError(fmt::format("cluster file {}: {} {}", file_, at(key), problem));
  }

 private:
  std::string at(std::string_view key) const {
    if (where_.empty()) return key.empty() ? "the whole" : std::string(key);
    return key.empty() ? where_ : fmt::format("{}.{}", where_, key);
  }

  const Json& object_;
  std::string file_, where_;
};

TransportCost read_transport(const Reader& reader) {
  TransportCost cost;
  cost.transport = reader.text("transport");
  if (cost.transport.empty()) reader.fail("transport", "is empty");
  cost.ranks = reader.integer("ranks", kMaxRanks);
  cost.link.latency_us = reader.cost("latency_us");
  cost.link.us_per_byte = reader.cost("us_per_byte");
  cost.reduce_us_per_byte = reader.cost("reduce_us_per_byte");
  cost.barrier_us = reader.cost("barrier_us");
  cost.copy_us_per_byte = reader.cost("copy_us_per_byte");
  return cost;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

void write_and_sync(const std::string& path, std::string_view text) {
  const File file(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file.fd() < 0) throw SystemError("create " + path, errno);
  while (!text.empty()) {
    const ssize_t n = ::write(file.fd(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("write " + path, errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (::fsync(file.fd()) != 0) throw SystemError("sync " + path, errno);
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
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("cluster file {} is not JSON: {}", name, json_fault(text)), "mend it there");
  }
  const Reader reader(json, name, "");
  // The version first: the rest may look different in another one.
  const int version = reader.integer("version", std::numeric_limits<int>::max());
  if (version != kVersion) {
    throw UsageError(fmt::format("cluster file {}: version {} is not known, only {}", name, version, kVersion),
                     "measure it anew: trireme bench comm --write-cluster " + name);
  }
  ClusterFile file;
  file.host = reader.text("host");
  file.cores = reader.integer("cores", std::numeric_limits<int>::max());
  file.date = reader.text("date");
  const Json& transports = reader.get("transports");
  if (!transports.is_array()) reader.fail("transports", "must be a list");
  for (size_t i = 0; i < transports.size(); ++i) {
    const TransportCost cost = read_transport(Reader(transports[i], name, fmt::format("transports[{}]", i)));
    for (const TransportCost& other : file.transports) {
      if (other.transport == cost.transport && other.ranks == cost.ranks) {
        reader.fail("transports", fmt::format("has {} with {} ranks twice", cost.transport, cost.ranks));
      }
    }
    file.transports.push_back(cost);
  }
  for (const auto& [key, value] : json.items()) {
    if (!kOwnKeys.contains(key)) file.others[key] = value.dump();
  }
  return file;
}

ClusterFile ClusterFile::load(const std::filesystem::path& path) { return from_json(read_all(path), path.string()); }

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
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw SystemError("make the folder " + folder.string(), error.value());
  const std::string temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  try {
    write_and_sync(temporary, to_json());
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw SystemError("rename to " + path.string(), errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  const File directory(folder, O_RDONLY | O_DIRECTORY);
  if (directory.fd() < 0 || ::fsync(directory.fd()) != 0)
    throw SystemError("sync the folder " + folder.string(), errno);
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
