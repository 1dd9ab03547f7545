#include "trireme/data/token_file.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);
constexpr int32_t kMagic16 = 20240520, kMagic32 = 20240801, kModelMagic = 20240326;
constexpr int32_t kVersion16 = 1, kVersion32 = 7;
constexpr const char* kMakeAgain = "the file is damaged or cut short: make or fetch it again";

int32_t word(std::span<const uint8_t> bytes, size_t index) {
  int32_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

bool is_llmc_magic(int32_t magic) { return magic == kMagic16 || magic == kMagic32; }

TokenPiece with_header(const std::shared_ptr<const FileBytes>& file) {
  const auto bytes = file->bytes();
  const std::string& name = file->name();
  if (bytes.size() < kHeaderBytes) {
    throw UsageError(
        fmt::format("{} has {} bytes, but the header of llm.c alone has {}", name, bytes.size(), kHeaderBytes),
        kMakeAgain);
  }
  const int32_t magic = word(bytes, 0), version = word(bytes, 1), count = word(bytes, 2);
  const int32_t expected = magic == kMagic16 ? kVersion16 : kVersion32;
  if (version != expected) {
    throw UsageError(fmt::format("{}, byte 4: version {} of llm.c's token file is not known, only {} with magic {}",
                                 name, version, expected, magic));
  }
  const size_t width = magic == kMagic16 ? 2 : 4, body = bytes.size() - kHeaderBytes;
  if (count < 0 || static_cast<uint64_t>(count) * width != body) {
    throw UsageError(
        fmt::format("{}, byte 8: the header says {} tokens of {} bytes, but {} bytes follow", name, count, width, body),
        kMakeAgain);
  }
  return {file, bytes.data() + kHeaderBytes, count, static_cast<int>(width)};
}

TokenPiece without_header(const std::shared_ptr<const FileBytes>& file) {
  const auto bytes = file->bytes();
  const std::string& name = file->name();
  if (bytes.size() >= 4) {
    const int32_t magic = word(bytes, 0);
    const auto swapped = static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(magic)));
    if (magic == kModelMagic || is_llmc_magic(swapped)) {
      throw UsageError(
          fmt::format("{} starts with {}, which is {}", name, magic,
                      magic == kModelMagic ? "a model of llm.c, not tokens" : "llm.c's magic in big-endian"),
          fmt::format("token files start with {} or {}, or hold uint16 ids only", kMagic16, kMagic32));
    }
  }
  if (bytes.size() % 2 != 0) {
    throw UsageError(fmt::format("{} has {} bytes, an odd number: without a header of llm.c it must be uint16 ids",
                                 name, bytes.size()),
                     "text is data.kind = \"text\"; a token file may be cut short");
  }
  return {file, bytes.data(), static_cast<int64_t>(bytes.size() / 2), 2};
}

[[noreturn]] void refuse_id(const TokenFile& file, const std::string& name, int64_t vocab) {
  int64_t at = 0;
  while (file.tokens.at(at) < vocab) ++at;
  std::string cure =
      fmt::format("set model.vocab to at least {}, or use the tokens of the model's tokenizer", file.largest + 1);
  if (!file.has_header) cure += "\n  read as uint16 ids, as it has no header of llm.c; text is data.kind = \"text\"";
  throw UsageError(fmt::format("{}: token {} is id {}, but model.vocab = {} allows ids up to {}", name,
                               format_count(at), file.tokens.at(at), vocab, vocab - 1),
                   cure);
}

}  // namespace

TokenFile read_token_file(const std::shared_ptr<const FileBytes>& file, int64_t vocab) {
  TokenFile opened;
  opened.has_header = file->bytes().size() >= 4 && is_llmc_magic(word(file->bytes(), 0));
  opened.tokens = opened.has_header ? with_header(file) : without_header(file);
  if (opened.tokens.count == 0) throw UsageError(fmt::format("{} holds no tokens", file->name()), "check data.path");
  opened.largest = opened.tokens.largest();
  if (vocab > 0 && opened.largest >= vocab) refuse_id(opened, file->name(), vocab);
  return opened;
}

TokenFile open_token_file(const std::filesystem::path& path, FileCache cache, int64_t vocab) {
  return read_token_file(FileBytes::open(path, cache), vocab);
}

bool looks_like_llmc(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  int32_t magic = 0;
  return stream.read(reinterpret_cast<char*>(&magic), sizeof magic) && is_llmc_magic(magic);
}

}  // namespace trireme
