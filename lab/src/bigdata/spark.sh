#!/bin/sh
# spark.sh ROLE ...: a part of a Spark cluster, in the foreground.
#
#   master HOST                    the master, at HOST:7077, until it is ended
#   worker HOST MASTER             a worker with one core, until it is ended
#   count HOST MASTER TEXT PARTS   wordcount.py, by as many executors as there are PARTS; it prints
#                                  "spark EXECUTORS" before that
#
# PACKAGES is a folder with pyspark and py4j, as pip installs them; LOCAL is where what is shuffled is put
# (/tmp). JVMs compile little: an emulated processor compiles slowly.
set -eu

role=$1 host=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
SPARK_HOME=$PACKAGES/pyspark
SPARK_SCALA_VERSION=$(basename "$SPARK_HOME"/jars/spark-core_*.jar | sed 's/.*_\(.*\)-.*/\1/')
SPARK_LOCAL_DIRS=$(mktemp -d "${LOCAL:-/tmp}/spark.XXXXXX")
trap 'rm -rf "$SPARK_LOCAL_DIRS"' EXIT
trap 'kill "$child" 2>/dev/null || true; exit 143' TERM INT HUP
few='-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k'
export SPARK_HOME SPARK_SCALA_VERSION SPARK_LOCAL_DIRS SPARK_LOCAL_HOSTNAME="$host"
export PYSPARK_PYTHON=/usr/bin/python3 PYTHONPATH="$PACKAGES"

# Waits for a server, which takes minutes to start in an emulated machine.
await() { # await HOST PORT
    "$PYSPARK_PYTHON" - "$@" <<'END'
import socket
import sys
import time

while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).close()
        break
    except OSError:
        time.sleep(1)
END
}

daemon() { # daemon CLASS WORD...
    class=org.apache.spark.deploy.$1
    shift
    # shellcheck disable=SC2086 # a list of words
    java $few -Xmx160m --add-opens=java.base/java.lang=ALL-UNNAMED \
        --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \
        -cp "$SPARK_HOME/jars/*" "$class" "$@" &
    child=$!
    wait "$child"
}

case $role in
master) daemon master.Master -h "$host" -p 7077 --webui-port 0 ;;
worker)
    await "$1" 7077
    daemon worker.Worker -h "$host" -c 1 -m 512m -d "$SPARK_LOCAL_DIRS" --webui-port 0 "spark://$1:7077"
    ;;
count)
    await "$1" 7077
    export PYSPARK_SUBMIT_ARGS="--master spark://$1:7077 --driver-memory 512m --executor-memory 512m \
        --conf spark.driver.host=$host --conf spark.ui.enabled=false --conf spark.network.timeout=600s \
        --conf spark.executor.heartbeatInterval=60s --conf spark.cores.max=$3 \
        --conf spark.scheduler.minRegisteredResourcesRatio=1 \
        --conf spark.scheduler.maxRegisteredResourcesWaitingTime=600s \
        --conf 'spark.driver.extraJavaOptions=$few' --conf 'spark.executor.extraJavaOptions=$few' \
        pyspark-shell"
    "$PYSPARK_PYTHON" "$here/wordcount.py" "$2" "$3" &
    child=$!
    wait "$child"
    ;;
*)
    echo "spark.sh: there is no $role" >&2
    exit 2
    ;;
esac
