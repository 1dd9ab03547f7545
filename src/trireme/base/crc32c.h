// CRC32C (Castagnoli): the checksum of checkpoints and of TensorBoard's records.
//
// Notices every single wrong bit and every burst of up to 32 bits. It is no defence against somebody who wants to
// forge. Threads: all. Nothing here fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

/// By the processor's own instruction where it has one (SSE4.2), else by tables. Pieces can be chained:
/// crc32c(b, crc32c(a)) is the checksum of a followed by b.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
uint32_t crc32c(std::string_view text, uint32_t before = 0);

/// The same by tables, on any processor.
uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace trireme
