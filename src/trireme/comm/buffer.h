// Memory from a communicator: on one host, every rank can reach it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace trireme {

/// Owns its memory, 64-byte aligned and zeroed. Must not outlive the world. Movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<void> memory, size_t num_bytes) : memory_(std::move(memory)), num_bytes_(num_bytes) {}

  void* data() const { return memory_.get(); }
  size_t num_bytes() const { return num_bytes_; }

 private:
  std::shared_ptr<void> memory_;
  size_t num_bytes_ = 0;
};

template <typename T>
class TypedBuffer {
 public:
  using value_type = T;
  TypedBuffer() = default;
  TypedBuffer(Buffer buffer, size_t count) : buffer_(std::move(buffer)), count_(count) {}

  T* data() const { return static_cast<T*>(buffer_.data()); }
  size_t size() const { return count_; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  T& operator[](size_t i) const { return data()[i]; }
  std::span<T> span() const { return {data(), count_}; }

 private:
  Buffer buffer_;
  size_t count_ = 0;
};

}  // namespace trireme
