#!/bin/sh
# What xl runs for a guest's network device in dom0: it is up, and who wants it bridged does that.
[ "$1" = online ] || exit 0
# shellcheck disable=SC2154 # xl sets it
ip link set "$vif" up && xenstore-write "$XENBUS_PATH/hotplug-status" connected
