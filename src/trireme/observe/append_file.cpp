#include "trireme/observe/append_file.h"

#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {

void AppendFile::append(std::string_view record) {
  const uint64_t before = file_.num_bytes();
  try {
    file_.write(record);
  } catch (const SystemError&) {
    // Half a record would hide the next ones from readers. Where even this fails, they see a torn record.
    const auto end = static_cast<off_t>(before);
    [[maybe_unused]] const bool mended = ::ftruncate(file_.fd(), end) == 0 && ::lseek(file_.fd(), end, SEEK_SET) == end;
    throw;
  }
}

}  // namespace trireme
