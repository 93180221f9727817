# Reports sent while the parent was dead arrive once after its restart.
kills differ: reports received before a kill are shown together
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > SpawnPod {"name":"b","write":"/project/b"}
model > I wait.
pod is idle
signal
pod is gone
pod a > ends
pod b > spends 7
pod b > crashes
boot
children: a lives, b crashed
pod is running
model > One is heard.
pod is running
model > Both are heard.
pod is idle
notes: 0
