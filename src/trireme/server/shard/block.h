// Bytes that several owners share: a gradient on its way from a socket into a sum and on to a replica, uncopied.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace trireme::server {

/// Copies share the memory. Threads: a block may be read by several; whoever writes makes sure of being the only owner.
class Block {
 public:
  Block() = default;
  /// 64-byte aligned, not initialised. Throws std::bad_alloc.
  explicit Block(size_t num_bytes) : num_bytes_(num_bytes) {
    if (num_bytes == 0) return;
    void* memory = std::aligned_alloc(64, (num_bytes + 63) / 64 * 64);
    if (memory == nullptr) throw std::bad_alloc();
    memory_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), std::free);
  }
  /// Memory of the caller's, who keeps it alive and unchanged.
  static Block view(std::span<const std::byte> bytes) {
    Block block;
    // Nobody writes to a view: it is not unique().
    block.memory_ = std::shared_ptr<std::byte>(std::shared_ptr<void>(), const_cast<std::byte*>(bytes.data()));
    block.num_bytes_ = bytes.size();
    return block;
  }
  static Block copy_of(std::span<const std::byte> bytes) {
    Block block(bytes.size());
    if (!bytes.empty()) std::memcpy(block.data(), bytes.data(), bytes.size());
    return block;
  }
  static Block zeros(size_t num_bytes) {
    Block block(num_bytes);
    if (num_bytes > 0) std::memset(block.data(), 0, num_bytes);
    return block;
  }

  std::byte* data() const { return memory_.get(); }
  size_t num_bytes() const { return num_bytes_; }
  std::span<const std::byte> bytes() const { return {data(), num_bytes_}; }
  float* floats() const { return reinterpret_cast<float*>(data()); }
  size_t num_floats() const { return num_bytes_ / sizeof(float); }
  bool empty() const { return num_bytes_ == 0; }
  /// No other block shares the memory.
  bool unique() const { return memory_.use_count() == 1; }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t num_bytes_ = 0;
};

}  // namespace trireme::server
