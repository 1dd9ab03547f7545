// A link in memory with a set capacity, and the endpoints of ranks that are joined by such links.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "trireme/comm/transport/endpoint.h"

namespace trireme {

/// The bytes of one direction. Thread-safe.
struct Pipe {
  size_t capacity = 1 << 20;
  std::mutex mutex;
  std::deque<std::byte> bytes;
  bool broken = false;
};

class PipeLink : public Link {
 public:
  PipeLink(std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> in, int peer)
      : out_(std::move(out)), in_(std::move(in)), peer_(peer) {}

  size_t write_some(ConstBytes data) override {
    std::lock_guard lock(out_->mutex);
    if (out_->broken) throw LinkBroken{peer_, "the pipe was cut"};
    const size_t n = std::min(data.size(), out_->capacity - std::min(out_->capacity, out_->bytes.size()));
    out_->bytes.insert(out_->bytes.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  size_t read_some(Bytes data) override {
    std::lock_guard lock(in_->mutex);
    if (in_->broken && in_->bytes.empty()) throw LinkBroken{peer_, "the pipe was cut"};
    const size_t n = std::min(data.size(), in_->bytes.size());
    std::copy_n(in_->bytes.begin(), n, data.begin());
    in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }

 private:
  std::shared_ptr<Pipe> out_, in_;
  int peer_;
};

/// Endpoints 0 … size − 1; pipe(a, b) carries what a sends to b.
class PipeWorld {
 public:
  explicit PipeWorld(int size, size_t capacity = 1 << 20) : size_(size) {
    for (int i = 0; i < size * size; ++i) {
      pipes_.push_back(std::make_shared<Pipe>());
      pipes_.back()->capacity = capacity;
    }
    for (int rank = 0; rank < size; ++rank) {
      const auto make_link = [this, rank](int peer) {
        return std::make_unique<PipeLink>(shared_pipe(rank, peer), shared_pipe(peer, rank), peer);
      };
      endpoints_.push_back(std::make_unique<Endpoint>(rank, size, make_link, nullptr));
    }
  }
  Endpoint& operator[](int rank) { return *endpoints_[static_cast<size_t>(rank)]; }
  Pipe& pipe(int from, int to) { return *shared_pipe(from, to); }
  int size() const { return size_; }

 private:
  const std::shared_ptr<Pipe>& shared_pipe(int from, int to) const {
    return pipes_[static_cast<size_t>(from * size_ + to)];
  }

  int size_;
  std::vector<std::shared_ptr<Pipe>> pipes_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace trireme
