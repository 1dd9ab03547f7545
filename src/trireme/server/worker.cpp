#include "trireme/server/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/optimizer/kernels.h"
#include "trireme/server/shard/tree_sum.h"
#include "trireme/server/worker_loop.h"

namespace trireme::server {

bool Pending::test() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->left == 0;
}

void Pending::wait(Clock::duration timeout) {
  if (!state_) return;
  const auto start = Clock::now();
  const auto patience = timeout == Clock::duration::zero() ? state_->timeout : timeout;
  std::unique_lock lock(state_->mutex);
  const bool ended = state_->ended.wait_until(lock, start + patience, [this] { return state_->left == 0; });
  *state_->blocked_ns += nanoseconds(Clock::now() - start);
  if (!state_->error.empty()) throw Error(fmt::format("{}: {}", state_->what, state_->error));
  if (!ended) {
    throw Error(fmt::format("{}: no answer within {} ms{}{}", state_->what,
                            std::chrono::duration_cast<std::chrono::milliseconds>(patience).count(),
                            state_->note.empty() ? "" : "; ", state_->note));
  }
}

size_t Pending::num_dropped() const {
  if (!state_) return 0;
  const std::lock_guard lock(state_->mutex);
  return state_->dropped;
}

struct Worker::Impl {
  WorkerOptions options;
  KeyTable table;
  LeafRange leaves;
  const Codec* codec = nullptr;
  std::unique_ptr<WorkerLoop> loop;
  bool closed = false;

  std::shared_ptr<Pending::State> make_state(std::string what) {
    auto state = std::make_shared<Pending::State>();
    state->what = fmt::format("worker {}: {}", options.worker, what);
    state->timeout = options.timeout;
    state->blocked_ns = loop->blocked_ns();
    return state;
  }

  Pending submit(std::shared_ptr<Pending::State> state, std::vector<Request> requests) {
    if (closed) throw UsageError("this worker has left the parameter servers");
    state->left = requests.size();
    for (Request& request : requests) {
      request.state = state;
      for (const Block& block : request.data) request.num_bytes += block.num_bytes();
      if (request.num_bytes > kMaxDataBytes) {
        throw UsageError(fmt::format("{}: {} in one message", state->what, format_bytes(request.num_bytes)),
                         fmt::format("send at most {} at once, or make pieces smaller", format_bytes(kMaxDataBytes)));
      }
    }
    if (!requests.empty()) loop->submit(std::move(requests));
    return Pending(std::move(state));
  }

  Request event(Type type, uint32_t piece, const PushOptions& push) const {
    Request request;
    request.shard = table.pieces()[piece].shard;
    request.priority = push.priority;
    request.is_event = true;
    request.event.type = type;
    request.event.worker = static_cast<uint32_t>(options.worker);
    request.event.piece = piece;
    request.event.clock = push.clock;
    request.event.lr = push.lr;
    request.event.factor = push.factor;
    return request;
  }

  Request query(uint32_t piece, const PullOptions& pull) const {
    Request request;
    request.shard = table.pieces()[piece].shard;
    request.priority = pull.priority;
    request.query.worker = static_cast<uint32_t>(options.worker);
    request.query.piece = piece;
    request.query.clock = pull.clock;
    request.query.priority = pull.priority;
    request.query.part = pull.part;
    return request;
  }

  /// To every server, about no piece in particular. It leaves after everything else of its step.
  std::vector<Request> events_for_all(Type type, const PushOptions& push) const {
    std::vector<Request> requests;
    for (int shard = 0; shard < table.num_servers(); ++shard) {
      Request request = event(type, 0, push);
      request.shard = shard;
      request.priority = UINT32_MAX;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  uint32_t find(const std::string& name, size_t count, const char* doing) const {
    const uint32_t key = table.find(name);
    if (table.keys()[key].count != count) {
      throw UsageError(
          fmt::format("{} {} elements, but key \"{}\" has {}", doing, count, name, table.keys()[key].count));
    }
    return key;
  }

  void check_branch(LeafRange leaves) const {
    const Settings& settings = options.settings;
    if (settings.mode != Mode::kSynchronous || is_branch(settings.leaves(), leaves)) return;
    throw UsageError(fmt::format("leaves {} to {} of {} are no branch of the tree of sums", leaves.first, leaves.last,
                                 settings.leaves()),
                     "push the partial sums that schedule_leaves() names, with push_partials()");
  }

  uint32_t find_rows(const std::string& name, std::span<const int64_t> rows, size_t count, const char* doing) const {
    const uint32_t number = table.find(name);
    const Key& key = table.keys()[number];
    if (key.row_width == 0) throw UsageError(fmt::format("key \"{}\" was declared without rows", name));
    if (count != rows.size() * key.row_width) {
      throw UsageError(fmt::format("{} {} elements for {} rows of {} of key \"{}\"", doing, count, rows.size(),
                                   key.row_width, name));
    }
    for (const int64_t row : rows) {
      if (row < 0 || static_cast<size_t>(row) >= key.count / key.row_width) {
        throw UsageError(fmt::format("key \"{}\" has rows 0 to {}, not {}", name, key.count / key.row_width - 1, row));
      }
    }
    return number;
  }

  /// Positions in `rows` of those in a piece, and their numbers within it.
  std::pair<std::vector<size_t>, std::vector<uint64_t>> rows_in(uint32_t piece, std::span<const int64_t> rows) const {
    const Piece& p = table.pieces()[piece];
    const size_t width = table.keys()[p.key].row_width, first = p.first / width, last = first + p.count / width;
    std::pair<std::vector<size_t>, std::vector<uint64_t>> found;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i]);
      if (row < first || row >= last) continue;
      found.first.push_back(i);
      found.second.push_back(row - first);
    }
    return found;
  }
};

Worker::Worker(WorkerOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  const WorkerOptions& own = impl_->options;
  check(own.settings, static_cast<int>(own.servers.size()));
  if (own.worker < 0 || own.worker >= own.settings.num_workers) {
    throw UsageError(fmt::format("there is no worker {} of {}", own.worker, own.settings.num_workers));
  }
  impl_->table = KeyTable(own.keys, own.settings.piece_elements, static_cast<int>(own.servers.size()));
  impl_->leaves = own.leaves.last > own.leaves.first ? own.leaves : own.settings.leaves_of(own.worker);
  if (impl_->leaves.first == impl_->leaves.last) {
    throw UsageError(fmt::format("{} leaves for {} workers: worker {} would have none", own.settings.leaves(),
                                 own.settings.num_workers, own.worker),
                     "give a leaf or more for each worker, or say which leaves are whose");
  }
  for (const Codec& codec : own.codecs) {
    if (own.settings.codec != 0 && codec.id == own.settings.codec) impl_->codec = &codec;
  }
  if (own.settings.codec != 0 && impl_->codec == nullptr) {
    throw UsageError(fmt::format("worker {} was given no codec {}", own.worker, own.settings.codec),
                     "put it into WorkerOptions::codecs, and into ServerOptions::codecs");
  }
  impl_->loop = std::make_unique<WorkerLoop>(own, impl_->table, impl_->leaves);
  impl_->loop->wait_until_joined(Deadline::after(own.timeout));
}

Worker::~Worker() = default;

const KeyTable& Worker::table() const { return impl_->table; }
uint64_t Worker::clock() const { return impl_->loop->clock(); }
WorkerStats Worker::stats() const { return impl_->loop->stats(); }

Pending Worker::init(const std::string& name, std::span<const float> values, Part part, uint64_t clock,
                     std::optional<uint64_t> num_updates) {
  const uint32_t key = impl_->find(name, values.size(), "init() of");
  std::vector<Request> requests;
  const auto [first, last] = impl_->table.pieces_of(key);
  for (uint32_t piece = first; piece < last; ++piece) {
    const Piece& p = impl_->table.pieces()[piece];
    Request request = impl_->event(Type::kInit, piece, {.clock = clock});
    request.event.part = part;
    request.event.num_updates = num_updates.value_or(clock);
    request.data = {Block::view(std::as_bytes(values.subspan(p.first, p.count)))};
    requests.push_back(std::move(request));
  }
  return impl_->submit(impl_->make_state(fmt::format("init of \"{}\"", name)), std::move(requests));
}

Pending Worker::push(const std::string& name, std::span<const float> gradient, const PushOptions& options) {
  const PartialGradient whole{impl_->leaves, gradient};
  return push_partials(name, std::span(&whole, 1), options);
}

Pending Worker::push_partials(const std::string& name, std::span<const PartialGradient> partials,
                              const PushOptions& options) {
  if (partials.empty()) throw UsageError(fmt::format("a push of nothing to \"{}\"", name));
  const uint32_t key = impl_->table.find(name);
  if (impl_->table.keys()[key].row_width > 0) {
    throw UsageError(fmt::format("key \"{}\" has rows", name), "push them with push_rows()");
  }
  for (const PartialGradient& partial : partials) {
    impl_->find(name, partial.values.size(), "push() of");
    impl_->check_branch(partial.leaves);
  }
  const Codec* const codec = impl_->codec;
  std::vector<Request> requests;
  const auto [first, last] = impl_->table.pieces_of(key);
  for (uint32_t piece = first; piece < last; ++piece) {
    const Piece& p = impl_->table.pieces()[piece];
    Request request = impl_->event(Type::kPush, piece, options);
    request.event.packed = codec != nullptr;
    for (const PartialGradient& partial : partials) {
      const std::span<const float> values = partial.values.subspan(p.first, p.count);
      request.data.push_back(codec != nullptr ? Block::copy_of(codec->encode({name, p.first, options.clock}, values))
                                              : Block::view(std::as_bytes(values)));
      request.event.partials.push_back({partial.leaves, static_cast<uint32_t>(request.data.back().num_bytes())});
    }
    requests.push_back(std::move(request));
  }
  return impl_->submit(impl_->make_state(fmt::format("push to \"{}\" for clock {}", name, options.clock)),
                       std::move(requests));
}

Pending Worker::push_rows(const std::string& name, std::span<const int64_t> rows, std::span<const float> values,
                          const PushOptions& options) {
  const PartialGradient whole{impl_->leaves, values};
  return push_rows(name, rows, std::span(&whole, 1), options);
}

Pending Worker::push_rows(const std::string& name, std::span<const int64_t> rows,
                          std::span<const PartialGradient> partials, const PushOptions& options) {
  if (partials.empty()) throw UsageError(fmt::format("a push of nothing to \"{}\"", name));
  uint32_t key = 0;
  for (const PartialGradient& partial : partials) {
    key = impl_->find_rows(name, rows, partial.values.size(), "push_rows() of");
    impl_->check_branch(partial.leaves);
  }
  const size_t width = impl_->table.keys()[key].row_width;
  std::vector<Request> requests;
  const auto [first, last] = impl_->table.pieces_of(key);
  for (uint32_t piece = first; piece < last; ++piece) {
    const auto [positions, numbers] = impl_->rows_in(piece, rows);
    const bool rounds = impl_->options.settings.mode == Mode::kSynchronous;
    if (numbers.empty() && !rounds) continue;  // a round waits for everybody, even for those without rows
    Request request = impl_->event(Type::kPush, piece, options);
    request.event.num_rows = static_cast<uint32_t>(numbers.size());
    const size_t values_bytes = numbers.size() * width * sizeof(float);
    Block data(numbers.size() * sizeof(uint64_t) + partials.size() * values_bytes);
    if (!numbers.empty()) std::memcpy(data.data(), numbers.data(), numbers.size() * sizeof(uint64_t));
    float* to = data.floats() + 2 * numbers.size();
    for (const PartialGradient& partial : partials) {
      request.event.partials.push_back({partial.leaves, static_cast<uint32_t>(values_bytes)});
      for (const size_t position : positions) {
        to = std::copy_n(partial.values.data() + position * width, width, to);
      }
    }
    if (!data.empty()) request.data = {std::move(data)};
    requests.push_back(std::move(request));
  }
  return impl_->submit(impl_->make_state(fmt::format("push of rows to \"{}\" for clock {}", name, options.clock)),
                       std::move(requests));
}

Pending Worker::pull(const std::string& name, std::span<float> into, const PullOptions& options) {
  return pull(std::span(&name, 1), std::span(&into, 1), options);
}

Pending Worker::pull(std::span<const std::string> names, std::span<const std::span<float>> into,
                     const PullOptions& options) {
  if (names.size() != into.size()) {
    throw UsageError(fmt::format("{} names and {} places to pull them into", names.size(), into.size()));
  }
  std::vector<Request> requests;
  for (size_t i = 0; i < names.size(); ++i) {
    const uint32_t key = impl_->find(names[i], into[i].size(), "pull() into");
    const auto [first, last] = impl_->table.pieces_of(key);
    for (uint32_t piece = first; piece < last; ++piece) {
      const Piece& p = impl_->table.pieces()[piece];
      Request request = impl_->query(piece, options);
      const std::span<float> to = into[i].subspan(p.first, p.count);
      request.deliver = [to](std::span<const std::byte> bytes) {
        if (bytes.size() != to.size_bytes()) throw Error("the server answers with another length");
        std::memcpy(to.data(), bytes.data(), bytes.size());
      };
      requests.push_back(std::move(request));
    }
  }
  const std::string what = names.size() == 1 ? fmt::format("\"{}\"", names[0]) : fmt::format("{} keys", names.size());
  return impl_->submit(impl_->make_state(fmt::format("pull of {} for clock {}", what, options.clock)),
                       std::move(requests));
}

Pending Worker::pull_rows(const std::string& name, std::span<const int64_t> rows, std::span<float> into,
                          const PullOptions& options) {
  const uint32_t key = impl_->find_rows(name, rows, into.size(), "pull_rows() into");
  const size_t width = impl_->table.keys()[key].row_width;
  std::vector<Request> requests;
  const auto [first, last] = impl_->table.pieces_of(key);
  for (uint32_t piece = first; piece < last; ++piece) {
    auto [positions, numbers] = impl_->rows_in(piece, rows);
    if (numbers.empty()) continue;
    Request request = impl_->query(piece, options);
    request.query.by_rows = true;
    request.query.num_rows = static_cast<uint32_t>(numbers.size());
    request.data = {Block::copy_of(std::as_bytes(std::span(numbers)))};
    request.deliver = [into, width, positions = std::move(positions)](std::span<const std::byte> bytes) {
      if (bytes.size() != positions.size() * width * sizeof(float)) {
        throw Error("the server answers with another length");
      }
      for (size_t i = 0; i < positions.size(); ++i) {
        std::memcpy(into.data() + positions[i] * width, bytes.data() + i * width * sizeof(float),
                    width * sizeof(float));
      }
    };
    requests.push_back(std::move(request));
  }
  return impl_->submit(impl_->make_state(fmt::format("pull of rows of \"{}\" for clock {}", name, options.clock)),
                       std::move(requests));
}

Pending Worker::finish_step(uint64_t clock) {
  std::vector<Request> requests;
  if (impl_->options.settings.mode == Mode::kBounded) {
    requests = impl_->events_for_all(Type::kFinish, {.clock = clock});
  }
  return impl_->submit(impl_->make_state(fmt::format("end of clock {}", clock)), std::move(requests));
}

std::vector<double> Worker::squares(uint64_t clock) {
  const auto& pieces = impl_->table.pieces();
  auto parts = std::make_shared<std::vector<std::vector<double>>>(pieces.size());
  auto is_gone = std::make_shared<bool>(false);
  std::vector<Request> requests;
  for (int shard = 0; shard < impl_->table.num_servers(); ++shard) {
    Request request = impl_->query(0, {.clock = clock});
    request.shard = shard;
    request.query.type = Type::kSquares;
    request.deliver = [this, shard, parts, is_gone, &pieces](std::span<const std::byte> bytes) {
      size_t at = 0;
      *is_gone |= bytes.empty();
      for (uint32_t number = 0; number < pieces.size() && !bytes.empty(); ++number) {
        if (pieces[number].shard != shard) continue;
        std::vector<double>& part = (*parts)[number];
        part.resize(impl_->table.num_squares(number));
        if (part.size() * sizeof(double) > bytes.size() - at) throw Error("the server answers with another length");
        std::memcpy(part.data(), bytes.data() + at, part.size() * sizeof(double));
        at += part.size() * sizeof(double);
      }
    };
    requests.push_back(std::move(request));
  }
  impl_->submit(impl_->make_state(fmt::format("squares of clock {}", clock)), std::move(requests)).wait();
  if (*is_gone) throw Error(fmt::format("servers have summed a later clock than {} without this worker", clock));
  std::vector<double> squares;
  for (uint32_t key = 0; key < impl_->table.keys().size(); ++key) {
    std::vector<double> blocks;
    const auto [first, last] = impl_->table.pieces_of(key);
    for (uint32_t piece = first; piece < last; ++piece) {
      blocks.insert(blocks.end(), (*parts)[piece].begin(), (*parts)[piece].end());
    }
    squares.push_back(add_block_squares(blocks));
  }
  return squares;
}

Pending Worker::commit(uint64_t clock, double lr, double factor, bool applies) {
  if (!impl_->options.settings.commits) throw UsageError("commit() without Settings::commits");
  std::vector<Request> requests = impl_->events_for_all(Type::kCommit, {.clock = clock, .lr = lr, .factor = factor});
  for (Request& request : requests) request.event.applies = applies;
  return impl_->submit(impl_->make_state(fmt::format("commit of clock {}", clock)), std::move(requests));
}

void Worker::close() {
  if (impl_->closed) return;
  impl_->closed = true;
  const Deadline deadline = Deadline::after(impl_->options.timeout);
  const bool idle = impl_->loop->wait_until_idle(deadline);
  impl_->loop->leave(Deadline::after(std::chrono::seconds(idle ? 5 : 1)));
  if (!idle) {
    throw Error(fmt::format("worker {}: requests were still under way when it left", impl_->options.worker),
                "wait() for them before close(): its error says what they waited for");
  }
}

}  // namespace trireme::server
