#include "trireme/train/servers/server_aggregation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/control/launch_environment.h"
#include "trireme/config/compression.h"

namespace trireme {
namespace {

using server::Mode;
using server::Part;

constexpr auto kGoodbye = std::chrono::seconds(10);  // for other workers to leave before this rank's servers end

/// Address at which other hosts reach this one.
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
  settings.mode = config.server.mode;
  settings.num_workers = num_workers;
  if (settings.mode == Mode::kBounded) settings.staleness_bound = config.server.staleness;
  settings.replicate = config.server.replicate;
  settings.commits = settings.mode == Mode::kSynchronous;
  settings.rule = update_rule(config.optimizer);
  if (config.compression.method != Method::kNone) settings.codec = PushCodec::kId;
  return settings;
}

std::unique_ptr<PushCodec> make_codec(const Config& config, const RankGroups& groups) {
  const CompressionOptions options = compression_options(config);
  if (options.method == Method::kNone) return nullptr;
  return std::make_unique<PushCodec>(options, groups.replica, groups.dp);
}

}  // namespace

ServerAggregation::ServerAggregation(const UpdateContext& context)
    : HostDecision(context),
      settings_(settings_of(config_, world_.size())),
      served_(serve_model(config_, part_, groups_)),
      codec_(make_codec(config_, groups_)) {
  plan_sums(context.layout);
  plan_layers();
  if (part_.parameters().device().is_cuda()) mirror_ = std::make_unique<GradientMirror>(part_, partials_.size());
  const server::KeyTable table(served_.keys, settings_.piece_elements, static_cast<int>(config_.server.count));
  for (size_t i = 0; i < served_.parameters.size(); ++i) {
    const ServedParameter& parameter = served_.parameters[i];
    if (parameter.by_rows) by_rows_ = i;
    if (!codec_ || !pushes(parameter) || parameter.by_rows) continue;
    // Under the same names as without servers.
    const std::string second = parameter.name + " (second use)";
    std::vector<std::string> tensors;
    for (const ServedParameter::Use& use : parameter.uses) tensors.push_back(use.number == 0 ? parameter.name : second);
    codec_->add(table, parameter.key, std::move(tensors));
  }
  give_weights(0, 0);
}

ServerAggregation::~ServerAggregation() {
  part_.model().set_layer_hooks({});
  try {
    leave(std::uncaught_exceptions() == 0);
  } catch (const std::exception& error) {
    log_warn("{}", error.what());
  }
}

/// Finds which partial sums this worker has, and which leaves of the servers' tree they cover.
void ServerAggregation::plan_sums(const Layout& layout) {
  sums_own_ = executor_.program().update.sums_own();
  const auto leaves = static_cast<int>(layout.leaves), leaves_each = leaves / groups_.dp, replica = groups_.replica;
  const auto own = schedule_leaves(leaves, {replica * leaves_each, (replica + 1) * leaves_each}).partials;
  tree_ = static_cast<int>(std::bit_ceil(static_cast<unsigned>(sums_own_ ? groups_.dp : leaves)));
  leaves_ = sums_own_ ? LeafRange{replica, replica + 1} : LeafRange{replica * leaves_each, (replica + 1) * leaves_each};
  if (sums_own_) partials_.push_back(leaves_);
  for (size_t i = 0; i < own.size() && !sums_own_; ++i) {
    const auto size = std::bit_ceil(static_cast<unsigned>(own[i].last - own[i].first));
    partials_.push_back({own[i].first, own[i].first + static_cast<int>(size)});
  }
  settings_.num_leaves = tree_ << (served_.most_uses - 1);
}

/// Decides where each pull is waited for.
void ServerAggregation::plan_layers() {
  for (const TiedParameter& tied : part_.held().tied()) waits_at_once_ |= !tied.is_local();
  waits_at_once_ |= groups_.tp > 1;
  pulls_.resize(served_.parameters.size());
  if (waits_at_once_) return;
  for (size_t i = 0; i < served_.parameters.size(); ++i) {
    of_layer_[static_cast<size_t>(served_.parameters[i].layer)].push_back(i);
  }
  part_.model().set_layer_hooks({[this](size_t layer) {
                                   const auto found = of_layer_.find(layer);
                                   if (found == of_layer_.end()) return;
                                   for (const size_t parameter : found->second) finish_pull(parameter);
                                 },
                                 {}});
}

/// For a replicated parameter only the first tp position communicates with the servers.
bool ServerAggregation::pushes(const ServedParameter& parameter) const {
  if (parameter.is_replicated && groups_.place > 0) return false;
  return is_synchronous() || parameter.entry >= 0;  // else the owner pushes the sum of all uses
}

bool ServerAggregation::pulls(const ServedParameter& parameter) const {
  return parameter.entry >= 0 && !(parameter.is_replicated && groups_.place > 0);
}

std::span<float> ServerAggregation::master(const ServedParameter& parameter) const {
  const torch::Tensor& master = part_.parameters().shards()[parameter.shard].master;
  return {master.data_ptr<float>(), static_cast<size_t>(master.numel())};
}

/// Starts servers; the workers of the first replica give them master weights and moments, which all replicas hold
/// alike.
void ServerAggregation::give_weights(int64_t step, int64_t num_updates) {
  clock_ = is_synchronous() ? static_cast<uint64_t>(step) : 0;
  server::ServerOptions options;
  options.bind = serving_address(world_);
  options.replicate = settings_.replicate;
  if (codec_) options.codecs = {codec_->codec(static_cast<uint64_t>(step) - clock_)};
  servers_ = start_servers(world_.comm(), static_cast<int>(config_.server.count), options);
  server::WorkerOptions worker;
  worker.worker = world_.rank();
  worker.settings = settings_;
  worker.keys = served_.keys;
  worker.servers = servers_.addresses;
  worker.credentials = servers_.credentials;
  worker.codecs = options.codecs;
  worker.leaves = leaves_;
  worker.uses.emplace();
  for (const ServedParameter& parameter : served_.parameters) {
    if (pushes(parameter)) worker.uses->push_back(served_.keys[parameter.key].name);
  }
  worker_ = std::make_unique<server::Worker>(std::move(worker));
  forget_pushes();
  has_all_rows_ = true;
  if (groups_.replica == 0) {
    // The asynchronous modes count updates per replica: one for each replica's step.
    const auto updates = static_cast<uint64_t>(is_synchronous() ? num_updates : num_updates * groups_.dp);
    const auto version = is_synchronous() ? static_cast<uint64_t>(step) : updates;
    std::vector<server::Pending> all;
    for (const ServedParameter& parameter : served_.parameters) {
      if (!pulls(parameter)) continue;
      const server::Key& key = served_.keys[parameter.key];
      const Optimizer::ShardState state = moments_ ? moments_->state_of(parameter.shard) : Optimizer::ShardState();
      const auto init = [&](const float* values, Part part) {
        if (values) all.push_back(worker_->init(key.name, {values, key.count}, part, version, updates));
      };
      init(state.first, Part::kFirst);
      init(state.second, Part::kSecond);
      init(master(parameter).data(), Part::kWeights);
    }
    for (server::Pending& each : all) each.wait();
  }
  world_.comm().barrier();
  moments_.reset();
}

void ServerAggregation::leave(bool waits) {
  if (!worker_) return;
  const server::ServersOfJob servers = std::move(servers_);
  const std::unique_ptr<server::Worker> worker = std::move(worker_);  // destroyed before the servers
  if (!waits) return;
  worker->close();
  for (const auto& each : servers.own) each->wait_until_done(Deadline::after(kGoodbye));
}

void ServerAggregation::restart(int64_t step, int64_t updates) {
  finish_pulls();
  leave(/*waits=*/true);
  give_weights(step, updates);
}

void ServerAggregation::refresh() {
  finish_pulls();
  if (is_synchronous()) return;
  world_.comm().barrier();  // all pushes have been waited for
  has_all_rows_ = true;     // at this moment
  start_pulls();
  finish_pulls();
  part_.refresh_tied_weights();
  world_.comm().barrier();  // and nobody pushes before all have pulled
}

std::vector<Optimizer::Kind> ServerAggregation::state() {
  if (moments_) return moments_->state();
  refresh();
  moments_ = std::make_unique<Optimizer>(config_.optimizer, part_.parameters());
  std::vector<server::Pending> all;
  for (const ServedParameter& parameter : served_.parameters) {
    if (parameter.entry < 0) continue;
    const server::Key& key = served_.keys[parameter.key];
    const Optimizer::ShardState state = moments_->state_of(parameter.shard);
    const auto pull = [&](float* into, Part part) {
      if (into) all.push_back(worker_->pull(key.name, {into, key.count}, {.clock = clock_, .part = part}));
    };
    pull(state.first, Part::kFirst);
    pull(state.second, Part::kSecond);
  }
  for (server::Pending& each : all) each.wait();
  if (!is_synchronous()) world_.comm().barrier();
  return moments_->state();
}

double ServerAggregation::gradient_factor() const {
  throw Error("gradients are summed on parameter servers, and no worker has the sum");
}

void ServerAggregation::load_pieces(const std::vector<StatePieces>& by_replica) {
  if (codec_) codec_->load(by_replica);
}

int ServerAggregation::num_on_their_way() const {
  return static_cast<int>(std::count_if(pulls_.begin(), pulls_.end(), [](const auto& pull) { return pull.valid(); }));
}

std::vector<server::ServerStats> ServerAggregation::stats() const {
  std::vector<server::ServerStats> all;
  for (const auto& each : servers_.own) all.push_back(each->stats());
  return all;
}

}  // namespace trireme
