/// JSON whose objects keep the order in which their keys were added: how every file and report writes it.
#pragma once

#include <nlohmann/json.hpp>

namespace trireme {

using Json = nlohmann::ordered_json;

}  // namespace trireme
