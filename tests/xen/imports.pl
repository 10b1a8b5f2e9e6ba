# The files of what Perl programs of the tests use.
use Config;
use Errno;
use Fcntl;
use IPC::Msg;
use IPC::Semaphore;
use IPC::SharedMem;
use IPC::SysV;
use POSIX;
use Test::More;
use Time::HiRes;
print "$_\n" for @DynaLoader::dl_shared_objects, values %INC;
-e "$_/Config_heavy.pl" and print "$_/Config_heavy.pl\n" for @INC;
