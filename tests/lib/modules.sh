# shellcheck shell=sh
# kernel_modules IMAGE DIRECTORY NAME...: copies modules of a kernel, whose image `kmod/build.sh --image` has
# told, and prints the commands that load them, in this order. What is built in is left out.
kernel_modules() {
    # Packages of merged systems have them in /usr.
    for modules in "${1%/boot/*}"/lib/modules "${1%/boot/*}"/usr/lib/modules; do
        modules=$modules/${1##*/vmlinuz-}/kernel
        [ ! -d "$modules" ] || break
    done
    to=$2
    shift 2
    for name in "$@"; do
        file=$(find "$modules" -name "$name.ko*")
        case $file in
        '') continue ;;
        *.xz) xz -dc "$file" >"$to/$name.ko" ;;
        *) cp "$file" "$to/$name.ko" ;;
        esac
        echo "busybox insmod $to/$name.ko"
    done
}
