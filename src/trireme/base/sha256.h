// SHA-256 and what a handshake needs around it: HMAC, comparison in constant time, random bytes from the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

using Digest = std::array<std::byte, 32>;

/// Feed any number of pieces, then finish() once. Not thread-safe; blocks never; fails never.
class Sha256 {
 public:
  Sha256();
  Sha256& update(std::span<const std::byte> data);
  Sha256& update(std::string_view text);
  Digest finish();

 private:
  void compress(const std::byte* block);

  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> block_;
  size_t filled_ = 0;
  uint64_t num_bytes_ = 0;
};

/// RFC 2104 over SHA-256, fed in pieces.
class HmacSha256 {
 public:
  explicit HmacSha256(std::span<const std::byte> key);
  explicit HmacSha256(std::string_view key);
  HmacSha256& update(std::span<const std::byte> data);
  HmacSha256& update(std::string_view text);
  Digest finish();

 private:
  Sha256 inner_, outer_;
};

Digest sha256(std::string_view text);
std::string to_hex(std::span<const std::byte> bytes);

/// Takes the same time wherever the two differ.
bool equal_in_constant_time(const Digest& a, const Digest& b);

/// From getrandom(2). Throws SystemError where the kernel has none.
void fill_random(std::span<std::byte> bytes);

}  // namespace trireme
