// A server or a worker of a parameter-server job, until it is done or killed: parameter_server_program KEY=VALUE…
//
//   role=server|worker   index=N          which one                    ports=P,P,…    of all servers, on 127.0.0.1
//   workers=N            steps=N          mode=sync|async|bounded      replicate=0|1  shared=0|1
//   pause_us=N           after each step of a worker                   grace_ms=N      before a dead one is left out
//
// A worker pushes gradients that are a function of worker, clock and element. It prints "step N" when all that it
// pushed in step N was acknowledged, and at the end "done CHECKSUM" of the weights; "error MESSAGE" (exit code 1)
// otherwise. A server prints "serving" when it has started, and "state P R T" when these numbers change: shards that it
// is primary of, how many of them have a replica with everything, and takeovers so far.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <string>
#include <thread>

#include "support/process_group.h"
#include "trireme/base/crc32c.h"
#include "trireme/base/text.h"
#include "trireme/server/server.h"
#include "trireme/server/worker.h"

namespace trireme::server {
namespace {

using namespace std::chrono_literals;
using Arguments = std::map<std::string, std::string>;

const std::vector<Key> kKeys = {{"first", 20'001, 0, true}, {"second", 7, 0, true}, {"third", 9'000, 0, true}};

int number(const Arguments& arguments, const std::string& name, int otherwise = 0) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? otherwise : std::stoi(found->second);
}

std::vector<SocketAddress> addresses(const Arguments& arguments) {
  std::vector<SocketAddress> all;
  for (const std::string_view port : split(arguments.at("ports"), ',')) {
    all.push_back({"127.0.0.1", static_cast<uint16_t>(std::stoi(std::string(port)))});
  }
  return all;
}

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void serve(const Arguments& arguments) {
  const std::vector<SocketAddress> all = addresses(arguments);
  ServerOptions options;
  options.index = number(arguments, "index");
  options.num_servers = static_cast<int>(all.size());
  options.credentials = {"the token", sha256("a job")};
  options.port = all[static_cast<size_t>(options.index)].port;
  options.replicate = number(arguments, "replicate") != 0;
  options.worker_grace = std::chrono::milliseconds(number(arguments, "grace_ms", 300));
  Server server(options);
  server.start(all);
  say("serving");
  std::string before;
  while (!server.wait_until_done(Deadline::after(5ms))) {
    const ServerStats stats = server.stats();
    const std::string now = fmt::format("state {} {} {}", stats.num_primary, stats.num_replicated, stats.num_takeovers);
    if (now != before) say(now);
    before = now;
  }
  std::this_thread::sleep_for(500ms);  // the other server of a shard may still ask for something
  say("done");
}

/// Small whole numbers: their sums are exact in every order, so that every mode has one right result.
void fill(std::vector<float>& gradient, int worker, uint64_t clock) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>((i + 3 * static_cast<size_t>(worker) + clock) % 5);
  }
}

void work(const Arguments& arguments) {
  WorkerOptions options;
  options.worker = number(arguments, "index");
  options.servers = addresses(arguments);
  options.credentials = {"the token", sha256("a job")};
  options.keys = kKeys;
  options.settings.num_workers = number(arguments, "workers", 1);
  options.settings.replicate = number(arguments, "replicate") != 0;
  options.settings.piece_elements = 4096;
  options.shared_memory = number(arguments, "shared", 1) != 0;
  const std::string mode = arguments.at("mode");
  options.settings.mode = mode == "sync" ? Mode::kSynchronous : mode == "async" ? Mode::kAsynchronous : Mode::kBounded;
  options.settings.staleness_bound = mode == "bounded" ? 2 : 0;
  Worker worker(options);
  std::map<std::string, std::vector<float>> weights, gradients;
  for (const Key& key : kKeys) {
    weights[key.name].resize(key.count);
    gradients[key.name].resize(key.count);
    worker.init(key.name, weights[key.name]).wait();
  }
  const auto steps = static_cast<uint64_t>(number(arguments, "steps", 50));
  for (uint64_t clock = worker.clock(); clock < steps; ++clock) {
    for (const Key& key : kKeys) worker.pull(key.name, weights[key.name], {.clock = clock}).wait();
    std::vector<Pending> pending;
    for (const Key& key : kKeys) {
      fill(gradients[key.name], options.worker, clock);
      pending.push_back(worker.push(key.name, gradients[key.name], {.clock = clock, .lr = 1}));
    }
    pending.push_back(worker.finish_step(clock));
    for (Pending& p : pending) p.wait();
    say(fmt::format("step {}", clock));
    std::this_thread::sleep_for(std::chrono::microseconds(number(arguments, "pause_us")));
  }
  // Without rounds there is no clock to wait for: the bound makes the last pull wait for the others.
  uint32_t checksum = 0;
  for (const Key& key : kKeys) {
    worker.pull(key.name, weights[key.name], {.clock = mode == "async" ? 0 : steps}).wait();
    checksum = crc32c(std::as_bytes(std::span(weights[key.name])), checksum);
  }
  say(fmt::format("reached {:08x}", checksum));
  worker.close();
  say("done");
}

int run(int argc, char** argv) {
  die_with_parent();
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    arguments[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  try {
    arguments.at("role") == "server" ? serve(arguments) : work(arguments);
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("error {}", error.what()));
    return 1;
  }
}

}  // namespace
}  // namespace trireme::server

int main(int argc, char** argv) { return trireme::server::run(argc, argv); }
