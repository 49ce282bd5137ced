package watcher

// onlyFolder is empty: agents alone run here, and they watch their own folders.
const onlyFolder = 0
