// Boost.Interprocess: message_queue, as its documentation's example makes it, of 100 messages. It
// sleeps on a condition variable in the queue, or, "boost-poll", is asked again and again.
#include "channel.h"

#include <boost/interprocess/ipc/message_queue.hpp>
#include <boost/version.hpp>

#include <exception>
#include <memory>
#include <string>
#include <unistd.h>

using boost::interprocess::create_only;
using boost::interprocess::message_queue;
using boost::interprocess::open_only;

namespace {

constexpr std::size_t messages = 100;
constexpr std::size_t most = 64 << 10; // of one message

std::unique_ptr<message_queue> queue[PROCESSES];
int mine;

std::string name(int inbox) {
    static const pid_t measures = getpid();
    return "channel-" + std::to_string(measures) + "-" + std::to_string(inbox);
}

std::size_t make(int processes, std::size_t size) {
    std::size_t piece = size < most ? size : most;
    try {
        for (int i = 0; i < processes; i++)
            queue[i] =
                std::make_unique<message_queue>(create_only, name(i).c_str(), messages, piece);
    } catch (const std::exception &error) {
        broken("message_queue", error.what());
    }
    // What is mapped is inherited; nothing is left should this program be killed.
    for (int i = 0; i < processes; i++)
        message_queue::remove(name(i).c_str());
    return piece;
}

void open_inbox(int me) { mine = me; }

void send(int to, const void *message, std::size_t size) { queue[to]->send(message, size, 0); }

void take(std::size_t got, std::size_t size) {
    if (got != size)
        broken("message_queue", "a message came short");
}

void receive(void *message, std::size_t size) {
    message_queue::size_type got;
    unsigned priority;
    queue[mine]->receive(message, size, got, priority);
    take(got, size);
}

void send_polling(int to, const void *message, std::size_t size) {
    unsigned times = 0;
    while (!queue[to]->try_send(message, size, 0))
        idle(&times);
}

void receive_polling(void *message, std::size_t size) {
    message_queue::size_type got;
    unsigned priority, times = 0;
    while (!queue[mine]->try_receive(message, size, got, priority))
        idle(&times);
    take(got, size);
}

const channel sleeping = {"boost", BOOST_LIB_VERSION, make,    open_inbox, send,
                          receive, nothing,           nothing, 0};
const channel polling = {"boost-poll",    BOOST_LIB_VERSION, make,    open_inbox, send_polling,
                         receive_polling, nothing,           nothing, 0};

} // namespace

extern "C" const channel *const channels[] = {&sleeping, &polling, nullptr};
