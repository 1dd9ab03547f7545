#include "trireme/train/engine_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/folder.h"
#include "trireme/checkpoint/hugging_face.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/train/broadcast_result.h"
#include "trireme/train/compression.h"
#include "trireme/train/residual_places.h"

namespace trireme {
namespace {

constexpr auto kOthersTimeout = std::chrono::minutes(2);
constexpr auto kLookAgain = std::chrono::milliseconds(10);
constexpr size_t kMostListed = 8;

std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

TensorInfo info_of(const std::string& name, const torch::Tensor& tensor) {
  return {name, data_of(local_part(tensor)).type, tensor.sizes().vec()};
}

/// Sharded state is always float32.
TensorInfo info_of(const Engine::NamedTensor& named) {
  return named.tensor.defined() ? info_of(named.name, named.tensor)
                                : TensorInfo{named.name, DataType::kFloat, named.sizes};
}

/// Written by a worker instead of its shard if that failed, so that nobody waits for it.
std::filesystem::path failure_note(const SavePlace& place, int shard) {
  return place.temporary() / fmt::format("failed-{:05}", shard);
}

void leave_failure_note(const SavePlace& place, int shard, int worker, const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    // On a full disk the note is empty.
    File::create(failure_note(place, shard))
        .write(fmt::format("worker {} could not write its share: {}", worker, error.what()));
  }
}

/// Throws if a worker failed to write its shard, with that worker's message, and if `ends` is set meanwhile.
void wait_for_shards(const PendingCheckpoint& pending, int num_shards, const std::function<int(int shard)>& worker_of,
                     const std::atomic<bool>& ends) {
  const Deadline deadline = Deadline::after(kOthersTimeout);
  while (!pending.all_written(num_shards)) {
    for (int shard = 0; shard < num_shards; ++shard) {
      const std::filesystem::path note = failure_note(pending.place(), shard);
      std::error_code ignored;
      if (!std::filesystem::exists(note, ignored)) continue;
      const std::string words = read_whole_file(note, 1 << 16);
      throw Error(fmt::format("step {} was not saved: {}", pending.place().step,
                              words.empty() ? fmt::format("worker {} could not write its share: its disk is full or "
                                                          "fails",
                                                          worker_of(shard))
                                            : words));
    }
    if (ends) throw Error(fmt::format("step {} was not saved: a worker has gone", pending.place().step));
    if (deadline.expired()) pending.wait_until_written(num_shards, deadline);  // throws, naming the missing shard
    std::this_thread::sleep_for(kLookAgain);
  }
}

/// Finds the weights file in a Hugging Face folder, or returns `path` if it is a file.
std::filesystem::path weights_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  const std::filesystem::path inside = path / "model.safetensors";
  if (std::filesystem::exists(inside, ignored)) return inside;
  const bool is_checkpoint = std::filesystem::exists(path / "manifest.json", ignored);
  throw UsageError("the folder has no model.safetensors",
                   is_checkpoint ? fmt::format("it is a checkpoint: --checkpoint.resume {}, or its weights alone from "
                                               "trireme checkpoint export {} --to FILE",
                                               path.string(), path.string())
                                 : "name a file of safetensors with the names of Hugging Face");
}

}  // namespace

EngineCheckpoints::EngineCheckpoints(World& world, Engine& engine, std::filesystem::path root,
                                     const CheckpointConfig& config, Callbacks callbacks)
    : world_(world),
      engine_(engine),
      root_(std::move(root)),
      config_(config),
      callbacks_(std::move(callbacks)),
      saver_(std::make_unique<AsyncSaver>()) {}

EngineCheckpoints::~EngineCheckpoints() { ends_ = true; }

void EngineCheckpoints::problem(const std::string& text) const {
  if (callbacks_.on_problem) callbacks_.on_problem(text);
}

/// All workers write a shard, or only the first of each stage.
int EngineCheckpoints::num_shards() const { return config_.spread ? world_.size() : engine_.groups().pp; }

/// The number of this worker's shard; num_shards() or more where it writes none.
int EngineCheckpoints::own_shard() const {
  const RankGroups& groups = engine_.groups();
  return config_.spread ? world_.rank() : groups.holder() == 0 ? groups.pipeline_rank : num_shards();
}

/// This worker's shard of the state of its stage: the largest tensors first, each given to the worker with the least so
/// far.
std::vector<SnapshotTensor> EngineCheckpoints::snapshot() const {
  const std::vector<Engine::NamedTensor> all = engine_.state();
  const RankGroups& groups = engine_.groups();
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return info_of(all[a]).num_bytes() > info_of(all[b]).num_bytes(); });
  std::vector<size_t> load(static_cast<size_t>(config_.spread ? groups.num_holders() : 1), 0);
  std::vector<SnapshotTensor> own;
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += info_of(all[i]).num_bytes() + 1;
    const torch::Tensor whole = engine_.gather(all[i]);  // collective, kept by one worker
    if (least - load.begin() != groups.holder()) continue;
    const torch::Tensor on_host = whole.cpu();
    const auto bytes = bytes_of(on_host);
    own.push_back({{info_of(all[i].name, on_host), {bytes.begin(), bytes.end()}}, all[i].group, 0, {}});
  }
  add_residuals(own);
  return own;
}

/// Residuals differ from worker to worker, so every worker saves its own.
void EngineCheckpoints::add_residuals(std::vector<SnapshotTensor>& own) const {
  const RankGroups& groups = engine_.groups();
  for (const StatePiece& piece : engine_.pieces()) {
    if (piece.values.empty() || (piece.kind == StateKind::kReplicated && groups.replica > 0)) continue;
    const PieceName name{groups.replica, groups.place, piece.kind, piece.first, piece.total, piece.name};
    const auto bytes = std::as_bytes(std::span(piece.values));
    const TensorInfo info{name.to_string(), DataType::kFloat, {static_cast<int64_t>(piece.values.size())}};
    own.push_back({{info, {bytes.begin(), bytes.end()}}, "compression", 0, {}});
  }
}

/// Loads what all replicas at this worker's tp position have saved, however many there were; if tp has changed, what
/// all positions have saved: [Note: Residuals of parts].
void EngineCheckpoints::load_residuals(const CheckpointReader& reader) {
  const RankGroups& groups = engine_.groups();
  std::vector<std::pair<const TensorInfo*, PieceName>> all;
  int num_places = 1;
  for (const TensorInfo& theirs : reader.tensors()) {
    if (!PieceName::is_one(theirs.name)) continue;
    all.emplace_back(&theirs, PieceName::parse(theirs.name));
    num_places = std::max(num_places, all.back().second.place + 1);
  }
  const bool moves = num_places != groups.tp;
  const std::vector<WholeTensor> own = moves ? engine_.part().own_tensors() : std::vector<WholeTensor>();
  std::vector<PlacedPiece> saved;
  for (const auto& [info, name] : all) {
    const auto is_of = [tensor = tensor_of_piece(name.name)](const WholeTensor& each) { return each.name == tensor; };
    if (moves ? std::none_of(own.begin(), own.end(), is_of) : name.place != groups.place) continue;
    StatePiece piece{name.name, name.kind, name.first, name.total, {}};
    piece.values.resize(static_cast<size_t>(info->shape.at(0)));
    reader.read(info->name, std::as_writable_bytes(std::span(piece.values)));
    saved.push_back({name.replica, name.place, std::move(piece)});
  }
  if (moves) {
    const auto cuts = [&](int places) {
      return PlaceCuts{places, places > 1 ? engine_.part().model().tensor_parallel_rules(places) : LayoutRules()};
    };
    return engine_.load_pieces(move_to_place(saved, own, cuts(num_places), cuts(groups.tp), groups.place));
  }
  std::vector<StatePieces> by_rank;
  for (PlacedPiece& each : saved) {
    const auto replica = static_cast<size_t>(each.replica);
    if (by_rank.size() <= replica) by_rank.resize(replica + 1);
    by_rank[replica].push_back(std::move(each.piece));
  }
  engine_.load_pieces(by_rank);
}

bool EngineCheckpoints::save() {
  finish();  // the folder takes one save at a time
  std::string bad;
  for (const Engine::NamedTensor& tensor : engine_.state()) {
    if (engine_.is_finite(tensor)) continue;
    bad = tensor.name;
    break;
  }
  if (!all_agree(bad.empty())) {
    problem(fmt::format("step {} was not saved: {} is not finite", engine_.steps_done(),
                        bad.empty() ? "another worker's part of a tensor" : bad));
    return false;
  }
  const auto start = Clock::now();
  const auto step = static_cast<uint64_t>(engine_.steps_done());
  std::shared_ptr<PendingCheckpoint> pending;
  std::string token;
  try {
    token = broadcast_result(world_.comm(), [&] {
      pending = std::make_shared<PendingCheckpoint>(PendingCheckpoint::begin(root_, step));
      return pending->place().token;
    });
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    problem(fmt::format("step {} was not saved: {}", step, error.what()));
    return false;
  }
  start_writing({root_, step, token}, std::move(pending), start);
  return config_.async || finish();
}

/// Writes this worker's shard in the background. Worker 0 then commits the save.
void EngineCheckpoints::start_writing(const SavePlace& place, std::shared_ptr<PendingCheckpoint> pending,
                                      Clock::time_point start) {
  SaveRequest request;
  request.place = place;
  request.shard = own_shard();
  request.num_shards = num_shards();
  request.tensors = snapshot();  // collective with tensor parallelism
  if (request.shard >= request.num_shards) return;
  if (world_.rank() == 0) {
    request.completion = [this, pending, num_shards = num_shards(), start,
                          meta = engine_.meta()](std::exception_ptr failure) {
      if (failure) return;
      const auto worker_of = [this](int shard) {
        return config_.spread ? shard : engine_.groups().first_worker(shard);
      };
      wait_for_shards(*pending, num_shards, worker_of, ends_);
      const PendingCheckpoint::Result result = pending->commit(num_shards, meta, static_cast<int>(config_.keep));
      if (!result.warning.empty()) problem(result.warning);
      if (callbacks_.on_done) {
        callbacks_.on_done({static_cast<int64_t>(pending->place().step), result.path, result.num_bytes,
                            std::chrono::duration<double>(Clock::now() - start).count()});
      }
    };
  } else {
    request.completion = [place = request.place, shard = request.shard,
                          worker = world_.rank()](std::exception_ptr failure) {
      if (failure) leave_failure_note(place, shard, worker, failure);
    };
  }
  try {
    saver_->start(std::move(request));
  } catch (const std::exception& error) {
    problem(error.what());
  }
}

bool EngineCheckpoints::finish() {
  bool good = true;
  try {
    saver_->wait();
  } catch (const std::exception& error) {
    problem(error.what());
    good = false;
  }
  return all_agree(good);
}

bool EngineCheckpoints::all_agree(bool good) {
  std::vector<int32_t> failed{good ? 0 : 1};
  if (world_.size() > 1) world_.comm().all_reduce(failed, ReduceOp::kMax);
  return failed[0] == 0;
}

std::optional<std::filesystem::path> EngineCheckpoints::load_newest(bool keep_position) {
  const std::string path = broadcast_result(world_.comm(), [&]() -> std::string {
    const Finding finding = find_newest(root_);
    for (const std::string& line : set_aside_damaged(finding)) problem(line);
    return finding.newest ? finding.newest->path.string() : "";
  });
  if (path.empty()) return std::nullopt;
  load(path, keep_position);
  return path;
}

void EngineCheckpoints::load(const std::filesystem::path& path, bool keep_position) {
  std::optional<CheckpointReader> opened;
  run_on_all(world_.comm(), [&] { opened.emplace(CheckpointReader::open(path)); });
  const CheckpointReader& reader = *opened;
  const std::vector<Engine::NamedTensor> state = engine_.state();
  std::vector<std::string> faults;
  size_t found = 0;
  bool weights_fit = true;
  for (const Engine::NamedTensor& item : state) {
    const TensorInfo own = info_of(item);
    const size_t before = faults.size();
    if (!reader.has(item.name)) {
      faults.push_back(fmt::format("{} is missing in it", item.name));
    } else if (const TensorInfo& theirs = reader.tensor(item.name); theirs.shape != own.shape) {
      faults.push_back(fmt::format("{} is {} in it and {} in the model", item.name, sizes_text(theirs.shape),
                                   sizes_text(own.shape)));
    } else {
      ++found;
    }
    weights_fit &= faults.size() == before || item.group != "weights";
  }
  // Tensors of the checkpoint that no stage has.
  std::vector<int32_t> known;
  for (const TensorInfo& theirs : reader.tensors()) {
    const auto same = [&](const Engine::NamedTensor& item) { return item.name == theirs.name; };
    known.push_back(PieceName::is_one(theirs.name) || std::any_of(state.begin(), state.end(), same) ? 1 : 0);
  }
  if (world_.size() > 1) world_.comm().all_reduce(known, ReduceOp::kMax);
  for (size_t i = 0; i < known.size(); ++i) {
    const TensorInfo& theirs = reader.tensors()[i];
    if (known[i] != 0) continue;
    faults.push_back(fmt::format("{} {} is only in it", theirs.name, sizes_text(theirs.shape)));
    weights_fit &= reader.group_of(theirs.name) != "weights";
  }
  run_on_all(world_.comm(), [&] {
    if (faults.empty()) return;
    std::string list;
    for (size_t i = 0; i < std::min(faults.size(), kMostListed); ++i) list += "\n  " + faults[i];
    if (faults.size() > kMostListed) list += fmt::format("\n  and {} more", faults.size() - kMostListed);
    throw UsageError(
        fmt::format("the checkpoint {} is of another {}: {} of {} tensors fit{}", path.string(),
                    weights_fit ? "optimizer" : "model", found, state.size(), list),
        "train with the config that made it (trireme checkpoint inspect shows it), or --checkpoint.resume never");
  });
  for (const Engine::NamedTensor& item : state) {
    if (item.tensor.defined() && item.tensor.is_cpu() && !is_mesh_tensor(item.tensor)) {
      reader.read(item.name, bytes_of(item.tensor));
    } else {
      const auto type = item.tensor.defined() ? item.tensor.scalar_type() : torch::kFloat32;
      const torch::Tensor read = torch::empty(item.sizes, type);
      reader.read(item.name, bytes_of(read));
      engine_.fill(item, read);
    }
  }
  engine_.restore(reader.meta(), keep_position);
  load_residuals(reader);
}

void EngineCheckpoints::start_from(const std::filesystem::path& path, const ModelConfig& model) {
  std::vector<OwnedTensor> tensors;
  run_on_all(world_.comm(), [&] {
    try {
      const SafetensorsFile weights(weights_file(path));
      tensors = from_hugging_face(model, weights.views());
    } catch (const Error& error) {
      throw UsageError(fmt::format("checkpoint.start_from = \"{}\": {}", path.string(), error.what()));
    }
  });
  torch::NoGradGuard no_grad;
  for (const Engine::NamedTensor& item : engine_.state()) {
    if (item.group != "weights") continue;
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const OwnedTensor& tensor) { return tensor.info.name == item.name; });
    if (found == tensors.end()) throw Error(fmt::format("{} has no {}", path.string(), item.name));
    const auto type = found->info.type == DataType::kFloat      ? torch::kFloat32
                      : found->info.type == DataType::kBFloat16 ? torch::kBFloat16
                      : found->info.type == DataType::kHalf     ? torch::kFloat16
                                                                : torch::kFloat64;
    engine_.fill(item, torch::from_blob(found->bytes.data(), item.sizes, type).to(torch::kFloat32));
  }
  engine_.restore(engine_.meta());
}

}  // namespace trireme
