#include "trireme/train/server_aggregation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/launch_environment.h"
#include "trireme/optimizer/kernels.h"

namespace trireme {
namespace {

using server::Mode;
using server::Part;

constexpr auto kGoodbye = std::chrono::seconds(10);  // for the other workers to leave, before own servers end

Mode mode_named(const std::string& name) {
  return name == "asynchronous" ? Mode::kAsynchronous : name == "bounded" ? Mode::kBounded : Mode::kSynchronous;
}

/// By which the other hosts reach this one.
std::string serving_address(const World& world) {
  if (world.local_size() == world.size()) return "127.0.0.1";
  const std::string address = read_launch_environment().bind_address;
  if (address.empty()) {
    throw UsageError("parameter servers on several hosts must know the address of their own",
                     "set TRIREME_BIND on every host, such as 10.0.0.5 (ip addr)");
  }
  return address;
}

server::Settings settings_of(const Config& config, int num_workers) {
  server::Settings settings;
  settings.mode = mode_named(config.server.mode);
  settings.num_workers = num_workers;
  if (settings.mode == Mode::kBounded) settings.staleness_bound = config.server.staleness;
  settings.replicate = config.server.replicate;
  settings.commits = settings.mode == Mode::kSynchronous;
  settings.rule = update_rule(config.optimizer);
  return settings;
}

std::span<float> floats_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

ServerAggregation::ServerAggregation(World& world, const Config& config, const BatchPlan& plan, ModelPart& part)
    : world_(world),
      config_(config),
      num_workers_(world.size()),
      own_(world.rank()),
      part_(part),
      settings_(settings_of(config, world.size())) {
  list_parameters();
  size_t most_uses = 1;
  for (const Parameter& parameter : parameters_) most_uses = std::max(most_uses, parameter.sources.size());
  const auto leaves = static_cast<int>(plan.leaves), share = leaves / num_workers_;
  tree_ = static_cast<int>(std::bit_ceil(static_cast<unsigned>(leaves)));
  settings_.num_leaves = tree_ << (most_uses - 1);
  for (const LeafRange& partial : schedule_leaves(leaves, {own_ * share, (own_ + 1) * share}).partials) {
    const auto size = std::bit_ceil(static_cast<unsigned>(partial.last - partial.first));
    partials_.push_back({partial.first, partial.first + static_cast<int>(size)});
  }
  give_weights(0);
}

ServerAggregation::~ServerAggregation() {
  try {
    leave(std::uncaught_exceptions() == 0);
  } catch (const std::exception& error) {
    log_warn("{}", error.what());
  }
}

void ServerAggregation::list_parameters() {
  const auto& entries = part_.parameters().entries();
  const auto& shares = part_.parameters().shares();
  const auto& sources = part_.stages()[0].gradients->sources();
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool decays = config_.optimizer.decay == "all" || entries[i].is_matrix;
    keys_.push_back({entries[i].name, static_cast<size_t>(entries[i].parameter.numel()), 0, decays});
    Parameter& parameter = parameters_.emplace_back();
    const auto share = std::find_if(shares.begin(), shares.end(), [&](const auto& each) { return each.entry == i; });
    parameter.share = static_cast<size_t>(share - shares.begin());
    for (size_t source = 0; source < sources.size(); ++source) {  // a second use lies where the first does
      if (sources[source].leaf.data_ptr() == entries[i].parameter.data_ptr()) parameter.sources.push_back(source);
    }
  }
}

std::span<float> ServerAggregation::master(size_t parameter) const {
  return floats_of(part_.parameters().shares()[parameters_[parameter].share].master);
}

/// Starts servers, and gives them masters and moments: rank 0 for all, who have the same.
void ServerAggregation::give_weights(int64_t step) {
  // Where this throws, nothing was started.
  const server::KeyTable table(keys_, settings_.piece_elements, static_cast<int>(config_.server.count));
  server::ServerOptions options;
  options.bind = serving_address(world_);
  options.replicate = settings_.replicate;
  servers_ = start_servers(world_.comm(), static_cast<int>(config_.server.count), options);
  server::WorkerOptions worker;
  worker.worker = own_;
  worker.settings = settings_;
  worker.keys = keys_;
  worker.servers = servers_.addresses;
  worker.credentials = servers_.credentials;
  worker_ = std::make_unique<server::Worker>(std::move(worker));
  forget_pushes();
  clock_ = is_synchronous() ? static_cast<uint64_t>(step) : 0;
  if (own_ == 0) {
    // Without rounds servers count updates: one for each worker's step.
    const auto updates = static_cast<uint64_t>(is_synchronous() ? step : step * num_workers_);
    std::vector<server::Pending> all;
    for (size_t i = 0; i < keys_.size(); ++i) {
      const Optimizer::ShareState state = moments_ ? moments_->state_of(parameters_[i].share) : Optimizer::ShareState();
      const auto init = [&](const float* values, Part part) {
        if (values) all.push_back(worker_->init(keys_[i].name, {values, keys_[i].count}, part, updates));
      };
      init(state.first, Part::kFirst);
      init(state.second, Part::kSecond);
      init(master(i).data(), Part::kWeights);
    }
    for (server::Pending& each : all) each.wait();
  }
  world_.comm().barrier();
  moments_.reset();
}

void ServerAggregation::leave(bool waits) {
  if (!worker_) return;
  const server::ServersOfJob servers = std::move(servers_);
  const std::unique_ptr<server::Worker> worker = std::move(worker_);  // ends before the servers
  if (!waits) return;
  worker->close();
  for (const auto& each : servers.own) each->wait_until_done(Deadline::after(kGoodbye));
}

void ServerAggregation::restart(int64_t step) {
  leave(/*waits=*/true);
  give_weights(step);
}

void ServerAggregation::push_group(int group) {
  if (!is_synchronous()) return;  // the factor is not known before the norm
  const GradientStore& store = *part_.stages()[0].gradients;
  if (missing_.empty()) {
    for (const Parameter& parameter : parameters_) missing_.push_back(static_cast<int>(parameter.sources.size()));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const size_t source : parameters_[i].sources) {
      if (store.group_of(source) == group && --missing_[i] == 0) push(i, 1, 0);
    }
  }
}

void ServerAggregation::push(size_t number, double factor, double lr) {
  Parameter& parameter = parameters_[number];
  const GradientStore& store = *part_.stages()[0].gradients;
  std::vector<server::PartialGradient> partials;
  for (size_t use = 0; use < parameter.sources.size(); ++use) {
    const int first = use == 0 ? 0 : tree_ << (use - 1);
    for (size_t slot = 0; slot < partials_.size(); ++slot) {
      const LeafRange leaves{first + partials_[slot].first, first + partials_[slot].last};
      partials.push_back({leaves, floats_of(store.gradient(static_cast<int>(slot), parameter.sources[use]))});
    }
  }
  pushes_.push_back(
      worker_->push_partials(keys_[number].name, partials,
                             {.clock = clock_, .lr = lr, .factor = factor, .priority = static_cast<uint32_t>(number)}));
  parameter.pushed = true;
}

void ServerAggregation::push_rest(double factor, double lr) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].pushed) push(i, factor, lr);
  }
}

void ServerAggregation::forget_pushes() {
  pushes_.clear();
  missing_.clear();
  for (Parameter& parameter : parameters_) parameter.pushed = false;
}

/// Of this worker's gradients, each summed over its uses and slots as the servers do it.
std::vector<double> ServerAggregation::own_squares() const {
  const GradientStore& store = *part_.stages()[0].gradients;
  std::vector<double> squares;
  for (const Parameter& parameter : parameters_) {
    torch::Tensor sum;
    for (const size_t source : parameter.sources) {
      for (size_t slot = 0; slot < partials_.size(); ++slot) {
        const torch::Tensor gradient = store.gradient(static_cast<int>(slot), source);
        sum = sum.defined() ? sum + gradient : gradient;
      }
    }
    squares.push_back(sum_of_squares(sum.const_data_ptr<float>(), static_cast<size_t>(sum.numel())));
  }
  return squares;
}

std::vector<double> ServerAggregation::squares() {
  const torch::NoGradGuard no_grad;
  moments_.reset();
  if (is_synchronous()) {
    push_rest(1, 0);
    return worker_->squares(clock_);
  }
  std::vector<double> squares = own_squares();
  world_.comm().all_reduce(squares);
  for (double& square : squares) square *= num_workers_;
  return squares;
}

void ServerAggregation::pull_weights() {
  std::vector<std::string> names;
  std::vector<std::span<float>> into;
  for (size_t i = 0; i < keys_.size(); ++i) {
    names.push_back(keys_[i].name);
    into.push_back(master(i));
  }
  worker_->pull(names, into, {.clock = clock_}).wait();
  part_.parameters().publish();
}

void ServerAggregation::update(double factor, double lr, bool applies) {
  if (is_synchronous()) {
    worker_->commit(clock_, lr, factor, applies).wait();
  } else if (applies) {
    push_rest(factor * num_workers_, lr / num_workers_);
  }
  for (server::Pending& each : pushes_) each.wait();
  forget_pushes();
  worker_->finish_step(clock_).wait();
  ++clock_;
  if (applies) pull_weights();
}

void ServerAggregation::refresh() {
  if (is_synchronous()) return;
  world_.comm().barrier();  // all have waited for what they pushed
  pull_weights();
  world_.comm().barrier();  // and nobody pushes before all have pulled
}

std::vector<Optimizer::Kind> ServerAggregation::state() {
  if (moments_) return moments_->state();
  refresh();
  moments_ = std::make_unique<Optimizer>(config_.optimizer, part_.parameters());
  std::vector<server::Pending> all;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const Optimizer::ShareState state = moments_->state_of(parameters_[i].share);
    const auto pull = [&](float* into, Part part) {
      if (into) all.push_back(worker_->pull(keys_[i].name, {into, keys_[i].count}, {.clock = clock_, .part = part}));
    };
    pull(state.first, Part::kFirst);
    pull(state.second, Part::kSecond);
  }
  for (server::Pending& each : all) each.wait();
  if (!is_synchronous()) world_.comm().barrier();
  return moments_->state();
}

std::vector<server::ServerStats> ServerAggregation::stats() const {
  std::vector<server::ServerStats> all;
  for (const auto& each : servers_.own) all.push_back(each->stats());
  return all;
}

}  // namespace trireme
