#include "trireme/base/sha256.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr size_t kBlockBytes = 64;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

uint32_t load_big_endian(const std::byte* p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | uint32_t(p[3]);
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::compress(const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = load_big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += mixed[i];
}

Sha256& Sha256::update(std::span<const std::byte> data) {
  num_bytes_ += data.size();
  while (!data.empty()) {
    if (filled_ == 0 && data.size() >= kBlockBytes) {
      compress(data.data());
      data = data.subspan(kBlockBytes);
      continue;
    }
    const size_t n = std::min(data.size(), kBlockBytes - filled_);
    std::copy_n(data.begin(), n, block_.begin() + filled_);
    filled_ += n;
    data = data.subspan(n);
    if (filled_ == kBlockBytes) {
      compress(block_.data());
      filled_ = 0;
    }
  }
  return *this;
}

Sha256& Sha256::update(std::string_view text) { return update(bytes_of(text)); }

Digest Sha256::finish() {
  const uint64_t num_bits = num_bytes_ * 8;
  std::array<std::byte, kBlockBytes + 8> padding{};
  padding[0] = std::byte{0x80};
  const size_t num_padding = (filled_ < 56 ? 56 : 120) - filled_;
  for (size_t i = 0; i < 8; ++i) padding[num_padding + i] = std::byte(num_bits >> (56 - 8 * i));
  update(std::span(padding).first(num_padding + 8));

  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = std::byte(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

HmacSha256::HmacSha256(std::span<const std::byte> key) {
  std::array<std::byte, kBlockBytes> block{};
  if (key.size() > kBlockBytes) {
    const Digest short_key = Sha256().update(key).finish();
    std::copy(short_key.begin(), short_key.end(), block.begin());
  } else {
    std::copy(key.begin(), key.end(), block.begin());
  }
  for (std::byte& b : block) b ^= std::byte{0x36};
  inner_.update(block);
  for (std::byte& b : block) b ^= std::byte{0x36 ^ 0x5c};
  outer_.update(block);
}

HmacSha256::HmacSha256(std::string_view key) : HmacSha256(bytes_of(key)) {}

HmacSha256& HmacSha256::update(std::span<const std::byte> data) {
  inner_.update(data);
  return *this;
}

HmacSha256& HmacSha256::update(std::string_view text) { return update(bytes_of(text)); }

Digest HmacSha256::finish() {
  const Digest inner = inner_.finish();
  return outer_.update(inner).finish();
}

Digest sha256(std::string_view text) { return Sha256().update(text).finish(); }

std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (std::byte b : bytes) {
    hex += kDigits[std::to_integer<unsigned>(b) >> 4];
    hex += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return hex;
}

bool equal_in_constant_time(const Digest& a, const Digest& b) {
  volatile unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | std::to_integer<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      throw SystemError("read random bytes from the kernel", errno);
    }
  }
}

}  // namespace trireme
