// Which keys there are, how they are cut into pieces, and which server has which piece.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::server {

/// A named flat tensor of float32.
struct Key {
  std::string name;
  size_t count = 0;
  size_t row_width = 0;  ///< of an embedding whose rows are pushed and pulled by number; 0: always whole
  bool decays = true;    ///< whether weight decay applies

  bool operator==(const Key&) const = default;
};

/// Consecutive elements of a key: the unit of messages, sums and updates.
struct Piece {
  uint32_t key = 0;
  size_t first = 0;  ///< within the key
  size_t count = 0;
  int shard = 0;  ///< the server that has it, while all live
};

/// An immutable value; equal arguments give equal tables, so nobody has to be told who has what.
class KeyTable {
 public:
  KeyTable() = default;
  /// The largest piece goes first, each to the server that has least. Throws UsageError: no keys, a name twice, a
  /// length of 0 or not of whole rows, a row longer than a piece, more servers than pieces.
  KeyTable(std::vector<Key> keys, size_t piece_elements, int num_servers);

  const std::vector<Key>& keys() const { return keys_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  int num_servers() const { return num_servers_; }
  /// Throws UsageError with the nearest name.
  uint32_t find(std::string_view name) const;
  /// Numbers first … last-1 are the pieces of a key, in order.
  struct Range {
    uint32_t first = 0, last = 0;
  };
  Range pieces_of(uint32_t key) const { return ranges_[key]; }
  /// How many numbers a server tells of a summed piece: a sum of squares for each block.
  size_t num_squares(uint32_t piece) const;

 private:
  std::vector<Key> keys_;
  std::vector<Piece> pieces_;
  std::vector<Range> ranges_;
  std::map<std::string, uint32_t, std::less<>> numbers_;  ///< by name
  int num_servers_ = 0;
};

}  // namespace trireme::server
