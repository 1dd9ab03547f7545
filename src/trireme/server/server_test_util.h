// What the tests of parameter servers share: a group in one process, and the sums that it must arrive at.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/server/server.h"
#include "trireme/server/shard/tree_sum.h"
#include "trireme/server/worker.h"

namespace trireme::server::testing {

using namespace std::chrono_literals;

inline control::Credentials test_credentials() { return {"the token", sha256("a job")}; }

inline std::vector<float> random_values(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  Philox(seed, "test").fill_normal(values);
  return values;
}

/// The gradient of a leaf, of a key, at a clock.
inline std::vector<float> gradient_of(const Key& key, uint64_t clock, int leaf) {
  return random_values(key.count, 1000 * clock + static_cast<uint64_t>(leaf) * 17 + key.name.size() + key.count);
}

struct Group {
  Settings settings;
  std::vector<Key> keys;
  std::vector<std::unique_ptr<Server>> servers;
  std::vector<Codec> codecs;
  bool shared_memory = true;
  ServerOptions server_options;

  void start(int num_servers) {
    server_options.credentials = test_credentials();
    server_options.replicate = settings.replicate;
    server_options.codecs = codecs;
    servers = start_local_servers(num_servers, server_options);
  }
  WorkerOptions worker_options(int worker) const {
    WorkerOptions options;
    options.worker = worker;
    options.settings = settings;
    options.keys = keys;
    options.servers = addresses_of(servers);
    options.credentials = test_credentials();
    options.codecs = codecs;
    options.shared_memory = shared_memory;
    options.timeout = 30s;
    return options;
  }
  /// Each worker on a thread; the first exception by worker is thrown.
  void run(const std::function<void(Worker&, int)>& body) const {
    std::vector<std::exception_ptr> errors(static_cast<size_t>(settings.num_workers));
    {
      std::vector<std::jthread> threads;
      for (int w = 0; w < settings.num_workers; ++w) {
        threads.emplace_back([&, w] {
          try {
            Worker worker(worker_options(w));
            body(worker, w);
            worker.close();
          } catch (...) {
            errors[static_cast<size_t>(w)] = std::current_exception();
          }
        });
      }
    }
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }
};

using Weights = std::map<std::string, std::vector<float>>;

/// What one machine gets that sums the gradients of `leaves` along the tree and updates.
class Reference {
 public:
  Reference(const Settings& settings, const std::vector<Key>& keys) : settings_(settings), keys_(keys) {
    for (const Key& key : keys) {
      weights[key.name] = random_values(key.count, key.count);
      first_[key.name].resize(key.count);
      second_[key.name].resize(key.count);
    }
  }
  /// With the gradients of `clock`; Adam counts the calls.
  void step(uint64_t clock, double lr, double factor) {
    for (const Key& key : keys_) {
      TreeSum sum(settings_.leaves(), 0);
      for (int leaf = 0; leaf < settings_.leaves(); ++leaf) {
        const std::vector<float> gradient = gradient_of(key, clock, leaf);
        sum.add({{leaf, leaf + 1}, Block::copy_of(std::as_bytes(std::span(gradient))), {}});
      }
      UpdateRule::Step step{factor, lr, num_updates_, key.decays};
      settings_.rule.apply(step, weights[key.name].data(), sum.finish().values.floats(),
                           settings_.rule.has_first() ? first_[key.name].data() : nullptr,
                           settings_.rule.has_second() ? second_[key.name].data() : nullptr, key.count);
    }
    ++num_updates_;
  }
  Weights weights;

 private:
  Settings settings_;
  std::vector<Key> keys_;
  Weights first_, second_;
  int64_t num_updates_ = 0;
};

}  // namespace trireme::server::testing
